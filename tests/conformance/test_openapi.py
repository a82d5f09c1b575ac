"""The OpenAPI document judged by a validator and by schemathesis: it is true, and no input gives a 500 or hangs."""

import json

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from jsonschema_rs import Draft202012Validator

from tests.service import Service


def no_fault(
    _context: schemathesis.CheckContext, response: schemathesis.Response, _case: schemathesis.Case
) -> None:
    """Refusals for lack of time or capacity (503, 504) are answers; any other 5xx is a fault of ours."""
    assert response.status_code < 500 or response.status_code in (503, 504), response.text


CHECKS = (
    no_fault,
    schemathesis.checks.status_code_conformance,
    schemathesis.checks.content_type_conformance,
    schemathesis.checks.response_schema_conformance,
)


@pytest.fixture(scope="module")
def document(service: Service) -> dict[str, object]:
    return httpx.get(service.url + "/openapi.json").json()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: mode.value)
def test_no_input_gives_a_500_or_an_answer_that_is_not_documented(
    service: Service, mode: schemathesis.GenerationMode
) -> None:
    """Schemathesis' own pytest plugin does not know this pytest; its strategies are all we need."""
    api = schemathesis.openapi.from_url(service.url + "/openapi.json")
    operations = [found.ok() for found in api.get_all_operations()]
    assert len(operations) > 20
    for operation in operations:
        is_post = operation.method == "post"

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=40 if is_post else 5,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        def ask(case: schemathesis.Case) -> None:
            case.call_and_validate(checks=CHECKS, timeout=20)

        ask()


def bodies(document: dict[str, object]) -> list[tuple[str, str, object, dict[str, object]]]:
    found = []
    for path, item in document["paths"].items():
        for method, operation in item.items():
            for kind, media in operation.get("requestBody", {}).get("content", {}).items():
                if "example" in media:
                    answer = operation["responses"]["200"]["content"]
                    found.append((method, path, (kind, media), answer))
    return found


def test_the_examples_work_and_fit_their_schemas(
    service: Service, document: dict[str, object]
) -> None:
    components = {"components": document["components"]}
    tried = 0
    for method, path, (kind, media), answer in bodies(document):
        request = Draft202012Validator({**media["schema"], **components})
        request.validate(media["example"])
        response = httpx.request(
            method,
            service.url + path,
            content=json.dumps(media["example"]),
            headers={"content-type": kind},
        )
        assert response.status_code == 200, (path, response.text)
        reply = Draft202012Validator({**answer["application/json"]["schema"], **components})
        reply.validate(response.json())
        tried += 1
    assert tried == 6  # two models: plain, infer, infer of a version


def test_the_document_has_exactly_what_is_served(
    service: Service, document: dict[str, object]
) -> None:
    assert document["openapi"] == "3.1.0"
    with httpx.Client(base_url=service.url) as client:
        for path, item in document["paths"].items():
            for method in ("get", "post"):
                response = client.request(method, path, content=b"")
                documented = method in item
                assert (response.status_code != 405) == documented, (path, method)
            refused = client.delete(path)
            assert refused.status_code == 405
            assert {m.upper() for m in item} <= set(refused.headers["allow"].split(", "))


def test_the_schema_refuses_what_the_service_refuses(
    service: Service, document: dict[str, object]
) -> None:
    media = document["paths"]["/models/net"]["post"]["requestBody"]["content"]
    validator = Draft202012Validator(
        {**media["application/json"]["schema"], "components": document["components"]}
    )
    wrong = [{"x": [0.0] * 63}, {"y": [0.0] * 64}, {"x": ["0"] * 64}, {"x": []}, [], {}, "x", None]
    for body in wrong:
        assert not validator.is_valid(body), body
        assert httpx.post(service.url + "/models/net", json=body).status_code == 400, body
    right = [{"x": [0.5] * 64}, {"x": [[0.5] * 64] * 3}, [0.5] * 64, [[0.5] * 64]]
    for body in right:
        assert validator.is_valid(body)
        assert httpx.post(service.url + "/models/net", json=body).status_code == 200
