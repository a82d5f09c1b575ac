"""What a served model is promised: rows stay their own, inputs are what it asked for, calls come one at a time."""

import concurrent.futures
import io
import math
import re
from pathlib import Path

import numpy as np
import pytest
import requests

from tests.service import Service

MODELS = Path(__file__).parent.parent / "models"
CLIENTS = 24
pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def service():
    with Service(
        f"norm={MODELS / 'rows.py'}:TrainBatchNorm",
        f"text={MODELS / 'transformer.py'}:Encoder",
        f"alone={MODELS / 'alone.py'}:net",
        "--threads",
        "1",
        "--max-batch",
        "16",
    ) as running:
        yield running


def _post(service, model, body, **headers):
    return requests.post(f"{service.url}/models/{model}", json=body, headers=headers, timeout=30)


def _at_once(service, model, bodies):
    """Send all bodies at the same time, and return the answers in their order."""
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        return [answer.json() for answer in pool.map(lambda b: _post(service, model, b), bodies)]


def _first(answer):
    return np.array(next(iter(answer.values())))


def _signature(service, model):
    return requests.get(f"{service.url}/models/{model}", timeout=10).json()


def _metric(service, name, model):
    text = requests.get(service.metrics_url, timeout=10).text
    values = re.findall(rf'^{name}{{[^}}]*model="{model}"[^}}]*}} (\S+)$', text, re.MULTILINE)
    return sum(map(float, values))


@pytest.mark.pain("T03")
def test_rows_that_depend_on_each_other_are_never_merged(service):
    """A norm over the batch gives other numbers for merged rows: sent at once or one by one, the answers are equal."""
    rng = np.random.default_rng(0)
    bodies = [rng.normal(size=(3, 4)).round(3).tolist() for _ in range(CLIENTS)]
    one_by_one = [_post(service, "norm", body).json() for body in bodies]
    at_once = _at_once(service, "norm", bodies)
    assert at_once == one_by_one
    batching = _signature(service, "norm")["batching"]
    assert batching["merge"] is False
    assert batching["reason"]


@pytest.mark.pain("T03")
def test_rows_that_are_merged_give_what_they_give_alone(service):
    """The rows of a transformer may be merged, and are under load; each answer stays that of its own row."""
    rng = np.random.default_rng(1)
    bodies = [
        {"ids": rng.integers(0, 100, 12).tolist(), "mask": [1] * 12} for _ in range(CLIENTS * 4)
    ]
    alone = [_first(_post(service, "text", body).json()) for body in bodies]
    calls = _metric(service, "torchgate_executions_total", "text")
    together = _at_once(service, "text", bodies)
    merged = _metric(service, "torchgate_executions_total", "text") - calls
    assert _signature(service, "text")["batching"]["merge"] is True
    assert merged < len(bodies)
    for expected, answer in zip(alone, together, strict=True):
        np.testing.assert_allclose(_first(answer), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.pain("T13")
def test_batches_grow_with_load_and_nobody_waits_without_it(service):
    """Nothing was set: one client gets its own call each time, many clients share calls."""
    body = {"ids": list(range(12)), "mask": [1] * 12}
    before = _metric(service, "torchgate_executions_total", "text")
    for _ in range(5):
        assert _post(service, "text", body).status_code == 200
    assert _metric(service, "torchgate_executions_total", "text") - before == 5
    before = _metric(service, "torchgate_executions_total", "text")
    _at_once(service, "text", [body] * 96)
    calls = _metric(service, "torchgate_executions_total", "text") - before
    assert 96 / 16 <= calls < 96


@pytest.mark.pain("T04")
def test_corner_cases_are_answered_or_refused_by_name(service):
    """One row, the most rows, no rows, one too many, the shortest length, both ends of the range of token ids."""
    row, mask = [1, 2, 3], [1, 1, 1]
    limit = _signature(service, "text")["batching"]["max_rows"]
    good = (
        {"ids": [row], "mask": [mask]},
        {"ids": [row] * limit, "mask": [mask] * limit},
        {"ids": [[0]], "mask": [[1]]},
        {"ids": [[99] * 5], "mask": [[1] * 5]},
    )
    for body in good:
        answer = _post(service, "text", body)
        assert answer.status_code == 200, answer.text
        assert len(_first(answer.json())) == len(body["ids"])
    bad = (
        ({"ids": [], "mask": []}, "empty-batch"),
        ({"ids": [row] * (limit + 1), "mask": [mask] * (limit + 1)}, "too-many-rows"),
        ({"ids": [[100]], "mask": [[1]]}, "bad-tensor"),
        ({"ids": [[-1]], "mask": [[1]]}, "bad-tensor"),
        ({"ids": [[]], "mask": [[]]}, "bad-tensor"),
        ({"ids": [[1, 2]], "mask": [[1]]}, "bad-tensor"),
        ({"ids": [[2**63]], "mask": [[1]]}, "bad-tensor"),
    )
    for body, cause in bad:
        answer = _post(service, "text", body)
        assert (answer.status_code, answer.json()["cause"]) == (400, cause), answer.text


@pytest.mark.pain("T06")
@pytest.mark.parametrize(
    ("ids", "got"),
    [
        ([1.5, 2, 3], "1.5"),
        (["1", 2, 3], "string"),
        ([True, 2, 3], "true"),
        ([None, 2, 3], "null"),
    ],
)
def test_a_value_of_another_type_is_refused_and_named(service, ids, got):
    answer = _post(service, "text", {"ids": ids, "mask": [1, 1, 1]})
    problem = answer.json()
    assert (answer.status_code, problem["cause"], problem["input"]) == (400, "bad-tensor", "ids")
    assert problem["expected"].startswith("INT64 [batch, ")
    assert got in problem["detail"] + problem["got"]


@pytest.mark.pain("T06")
def test_a_binary_tensor_is_converted_only_without_loss(service):
    """numpy's own default, float64, is refused for a float32 input; float16 widens exactly."""

    def send(array):
        body = io.BytesIO()
        np.save(body, array)
        headers = {"content-type": "application/x-npy"}
        return requests.post(
            f"{service.url}/models/norm", data=body.getvalue(), headers=headers, timeout=30
        )

    rows = np.array([[1, 2, 3, 4], [4, 3, 2, 1.5]])
    refused = send(rows)
    assert (refused.status_code, refused.json()["cause"]) == (400, "bad-tensor")
    assert "FP64" in refused.json()["got"] + refused.json()["detail"]
    assert send(rows.astype(np.float16)).json() == send(rows.astype(np.float32)).json()


@pytest.mark.pain("T14")
def test_the_same_mistake_is_explained_alike_in_both_protocols(service):
    """Tensor, expected, got and hint stand in the problem details and in the Open Inference Protocol's text."""
    plain = _post(service, "norm", {"x": [[1, 2, 3]]}).json()
    assert plain["input"] == "x"
    assert plain["expected"] == "FP32 [batch, 4]"
    assert "3" in plain["got"]
    tensor = {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}
    answer = requests.post(
        f"{service.url}/v2/models/norm/infer", json={"inputs": [tensor]}, timeout=30
    )
    assert answer.status_code == 400
    text = answer.json()["error"]
    assert text.startswith("[bad-tensor] ")
    for part in (repr(plain["input"]), plain["expected"]):
        assert part in text


@pytest.mark.pain("T19")
def test_a_model_is_never_called_by_two_threads_at_a_time(service):
    answers = _at_once(service, "alone", [[[0.0]]] * (CLIENTS * 2))
    assert {float(_first(answer).max()) for answer in answers} == {1.0}
    assert not math.isnan(_metric(service, "torchgate_executions_total", "alone"))
