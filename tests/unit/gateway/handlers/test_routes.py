"""Which path answers what, without sockets."""

import msgspec
import pytest

from tests.unit.gateway.handlers.recorded import SIGNATURE, Context, Sink, context, exchange
from torchgate.gateway.exchange import Exchange
from torchgate.gateway.handlers import routes
from torchgate.schema.config import ListenerConfig, ModelConfig, Page
from torchgate.schema.messages import TextReply
from torchgate.schema.signature import Dimension

pytestmark = pytest.mark.interpreted  # its stand-ins are no compiled classes


def get(
    made: Context, path: str, method: bytes = b"GET", **listener: object
) -> tuple[Exchange, Sink]:
    router = routes(made, ListenerConfig(**listener))
    asked, sink = exchange(path, method)
    route = router.find(path)
    assert route is not None, path
    asked.oip, asked.model, asked.params = route.oip, route.model, route.params
    route.handlers[method](asked)
    return asked, sink


def test_server_and_model_metadata() -> None:
    with context() as made:
        _, sink = get(made, "/v2")
        assert sink.json()["name"] == "torchgate"
        assert sink.json()["extensions"] == ["binary_tensor_data", "statistics"]
        _, sink = get(made, "/v2/models/net/versions/1")
        assert sink.json() == {
            "name": "net",
            "versions": ["1"],
            "platform": "pytorch_eager",
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}],
        }
        assert get(made, "/v2/models")[1].json() == {"models": ["net"]}


def test_a_model_that_still_loads_has_no_metadata_yet() -> None:
    with context(signature=None) as made:
        asked, sink = get(made, "/v2/models/net")
        assert asked.status == 503
        assert sink.headers[b"retry-after"] == b"1"
        asked, sink = get(made, "/models/net")
        assert asked.status == 200
        assert sink.json()["state"] == "starting"
        assert "inputs" not in sink.json()


@pytest.mark.parametrize(
    ("path", "cause"),
    [
        ("/v2/models/nett", "unknown-model"),
        ("/v2/models/other/infer", "unknown-model"),
        ("/v2/models/net/versions/2/infer", "unknown-version"),
        ("/v2/models/net/versions/2", "unknown-version"),
        ("/v2/models/net/versions", "not-found"),
        ("/v2/models/net/", "not-found"),
        ("/v2/models/", "unknown-model"),
        ("/models/nett", "unknown-model"),
        ("/models/net/predict", "not-found"),
    ],
)
@pytest.mark.parametrize("method", [b"GET", b"POST", b"DELETE", b"OPTIONS"])
def test_what_is_not_served_is_404_and_says_which_part(
    path: str, cause: str, method: bytes
) -> None:
    with context() as made:
        asked, sink = get(made, path, method)
        assert (asked.status, asked.cause) == (404, cause)
        assert ("error" in sink.json()) == path.startswith("/v2")


def test_a_preflight_for_an_unknown_model_is_404_too() -> None:
    headers = {"origin": "http://a.example", "access-control-request-method": "POST"}
    with context() as made:
        for path in ("/models/nope", "/v2/models/nope/infer"):
            route = routes(made, ListenerConfig()).find(path)
            assert route is not None
            asked, _ = exchange(path, b"OPTIONS", headers=headers)
            route.handlers[b"OPTIONS"](asked)
            assert (asked.status, asked.cause) == (404, "unknown-model")
            assert route.allow.count(b"OPTIONS") == 1
        # What is served is left to the gateway, which knows the origins.
        assert b"OPTIONS" not in routes(made, ListenerConfig()).find("/models/net").handlers


def test_an_unknown_model_is_answered_with_the_nearest_name() -> None:
    with context() as made:
        assert "did you mean 'net'?" in get(made, "/models/nett")[1].json()["detail"]
        assert "served are: net" in get(made, "/models/qqqq")[1].json()["detail"]
        long = get(made, "/models/" + "a" * 5000)[1]
        assert len(long.body) < 1000


def test_readiness_is_503_with_the_reason_until_all_is_ready() -> None:
    with context() as made:
        asked, sink = get(made, "/readyz")
        assert asked.status == 503
        assert sink.json() == {
            "status": "not-ready",
            "models": [
                {
                    "name": "net",
                    "state": "starting",
                    "ready": 0,
                    "wanted": 1,
                    "reason": "replica 0 is starting",
                }
            ],
        }
        assert get(made, "/v2/health/ready")[0].status == 503
        asked, sink = get(made, "/v2/models/net/ready")
        assert (asked.status, sink.json()) == (503, {"name": "net", "ready": False})
        assert get(made, "/v2/health/live")[1].json() == {"live": True}
        assert get(made, "/healthz")[0].status == 200
        made.draining = True
        assert get(made, "/readyz")[1].json()["status"] == "draining"
        assert get(made, "/healthz")[0].status == 200


def test_statistics_and_public_metrics_come_from_the_supervisor() -> None:
    with context() as made:
        assert get(made, "/v2/models/net/stats")[1].body == b"the text"
        assert get(made, "/v2/models/stats")[1].content_type == "application/json"
        assert made.asked == [("statistics", "net"), ("statistics", "")]
        assert get(made, "/metrics", public_metrics=True)[1].body == b"the text"
        assert routes(made, ListenerConfig()).find("/metrics") is None
        made.reply = TextReply(id=1, ok=False, text="too many questions")
        asked, sink = get(made, "/v2/models/net/stats")
        assert asked.status == 503
        assert "too many questions" in sink.json()["error"]


def test_the_root_leads_to_the_docs_unless_there_is_a_page() -> None:
    with context() as made:
        asked, sink = get(made, "/")
        assert (asked.status, sink.headers[b"location"]) == (302, b"/docs")
        page = Page(path="/", file="x.html", content_type="text/html")
        assert routes(made, ListenerConfig(pages=(page,))).find("/") is None


def test_a_model_named_like_an_extension_keeps_its_infer() -> None:
    with context(ModelConfig(name="stats", target="x:y")) as made:
        assert get(made, "/v2/models/stats")[1].body == b"the text"
        assert routes(made, ListenerConfig()).find("/v2/models/stats/infer") is not None


def test_an_open_dimension_has_no_maximum_and_says_so_as_null() -> None:
    dimensions = (Dimension(name="length", tried=64), Dimension(name="width", maximum=8))
    signature = msgspec.structs.replace(SIGNATURE, dimensions=dimensions)
    with context(signature=signature) as made:
        shown = get(made, "/models/net")[1].json()
        assert [d["maximum"] for d in shown["dimensions"]] == [None, 8]
        schema = get(made, "/openapi.json")[1].json()["components"]["schemas"]["Model"]
        item = schema["properties"]["dimensions"]["items"]
        assert item["properties"]["maximum"]["type"] == ["integer", "null"]


def test_the_example_is_shown_as_json() -> None:
    with context() as made:
        document = get(made, "/models")[1].json()["models"][0]
        assert SIGNATURE.example is not None
        assert document["example"] == msgspec.json.decode(SIGNATURE.example)
        assert document["outputs"][0]["labels"] == ["a", "b", "c"]
