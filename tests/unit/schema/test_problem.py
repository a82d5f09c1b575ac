"""Every cause has a status and a title, and both error bodies say what a client needs."""

from __future__ import annotations

import json

import pytest

from torchgate.errors import Cause, RequestError, TensorError
from torchgate.schema.problem import STATUS, TITLE, oip_json, problem_json


@pytest.mark.parametrize("cause", list(Cause))
def test_every_cause_becomes_an_answer(cause: Cause) -> None:
    """A cause without status or title would be a bare 500 at three in the morning."""
    status, content_type, body = problem_json(RequestError(cause, "why"), "r1")
    problem = json.loads(body)
    assert status == STATUS[cause] == problem["status"]
    assert content_type == "application/problem+json"
    assert problem["title"] == TITLE[status]
    assert problem["cause"] == cause
    assert problem["detail"] == "why"
    assert problem["request_id"] == "r1"
    assert str(cause) in json.loads(oip_json(RequestError(cause, "why"), "r1")[2])["error"]


def test_a_tensor_error_names_input_expected_got_hint() -> None:
    """The same structured error in both protocols."""
    error = TensorError(
        Cause.BAD_TENSOR,
        "wrong size",
        input="x",
        expected="FP32 [batch, 64]",
        got="[1, 63]",
        hint="pad it",
    )
    problem = json.loads(problem_json(error, "r")[2])
    assert (problem["input"], problem["expected"], problem["got"], problem["hint"]) == (
        "x",
        "FP32 [batch, 64]",
        "[1, 63]",
        "pad it",
    )
    text = json.loads(oip_json(error, "r")[2])["error"]
    for part in ("bad-tensor", "x", "FP32 [batch, 64]", "[1, 63]", "pad it"):
        assert part in text
