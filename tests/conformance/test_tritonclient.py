"""``tritonclient[http]``, unmodified, against a real service. Bodies of every datatype: `test_tritonclient_bodies`."""

from collections.abc import Iterator

import numpy as np
import pytest

from tests.service import Service

triton = pytest.importorskip("tritonclient.http")
triton_utils = pytest.importorskip("tritonclient.utils")


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[object]:
    """A client with several connections."""
    client = triton.InferenceServerClient(service.url.removeprefix("http://"), concurrency=4)
    yield client
    client.close()


def given(name: str, array: np.ndarray, datatype: str, *, binary: bool) -> object:
    tensor = triton.InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array, binary_data=binary)
    return tensor


def adder_inputs(*, binary: bool, rows: int = 1) -> tuple[list[object], np.ndarray, np.ndarray]:
    a = np.arange(16 * rows, dtype=np.int32).reshape(rows, 16)
    b = np.full((rows, 16), 3, np.int32)
    return [given("a", a, "INT32", binary=binary), given("b", b, "INT32", binary=binary)], a, b


def test_health_and_metadata(client: object) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("net")
    assert client.is_model_ready("net", "1")
    assert not client.is_model_ready("nobody")
    server = client.get_server_metadata()
    assert server["name"] == "torchgate"
    assert {"binary_tensor_data", "statistics"} <= set(server["extensions"])
    model = client.get_model_metadata("adder")
    assert model["versions"] == ["1"]
    assert model["platform"] == "pytorch_eager"
    assert model["inputs"] == [
        {"name": "a", "datatype": "INT32", "shape": [-1, 16]},
        {"name": "b", "datatype": "INT32", "shape": [-1, 16]},
    ]
    assert [output["name"] for output in model["outputs"]] == ["sum", "difference"]
    assert client.get_model_metadata("adder", "1") == model


@pytest.mark.parametrize("binary_in", [False, True])
@pytest.mark.parametrize("binary_out", [False, True])
def test_infer_in_both_forms_both_ways(client: object, binary_in: bool, binary_out: bool) -> None:
    inputs, a, b = adder_inputs(binary=binary_in, rows=3)
    outputs = [
        triton.InferRequestedOutput("difference", binary_data=binary_out),
        triton.InferRequestedOutput("sum", binary_data=not binary_out),
    ]
    result = client.infer("adder", inputs, outputs=outputs, request_id="my-id")
    np.testing.assert_array_equal(result.as_numpy("sum"), a + b)
    np.testing.assert_array_equal(result.as_numpy("difference"), a - b)
    response = result.get_response()
    assert response["id"] == "my-id"
    assert response["model_name"] == "adder"
    assert [output["name"] for output in response["outputs"]] == ["difference", "sum"]


def test_without_named_outputs_all_come(client: object) -> None:
    inputs, a, b = adder_inputs(binary=True)
    result = client.infer("adder", inputs, model_version="1")
    np.testing.assert_array_equal(result.as_numpy("sum"), a + b)
    np.testing.assert_array_equal(result.as_numpy("difference"), a - b)


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_requests_and_answers(client: object, algorithm: str) -> None:
    inputs, a, b = adder_inputs(binary=True, rows=40)
    result = client.infer(
        "adder",
        inputs,
        request_compression_algorithm=algorithm,
        response_compression_algorithm=algorithm,
    )
    np.testing.assert_array_equal(result.as_numpy("sum"), a + b)


def test_concurrent_requests_each_get_their_own_answer(client: object) -> None:
    pending = []
    for i in range(64):
        a = np.full((1, 16), i, np.int32)
        b = np.zeros((1, 16), np.int32)
        inputs = [given("a", a, "INT32", binary=True), given("b", b, "INT32", binary=True)]
        pending.append(client.async_infer("adder", inputs))
    for i, request in enumerate(pending):
        assert int(request.get_result().as_numpy("sum")[0, 0]) == i


def test_errors_are_readable(client: object) -> None:
    inputs, _, _ = adder_inputs(binary=True)
    with pytest.raises(triton_utils.InferenceServerException, match="did you mean 'adder'"):
        client.infer("addre", inputs)
    with pytest.raises(triton_utils.InferenceServerException, match="has no version '7'"):
        client.infer("adder", inputs, model_version="7")
    with pytest.raises(triton_utils.InferenceServerException, match="missing-input"):
        client.infer("adder", inputs[:1])
    wrong = np.zeros((1, 15), np.int32)
    inputs[0] = given("a", wrong, "INT32", binary=True)
    with pytest.raises(triton_utils.InferenceServerException, match=r"INT32 \[batch, 16\]"):
        client.infer("adder", inputs)


def test_a_timeout_in_microseconds_is_honoured(client: object) -> None:
    inputs, a, b = adder_inputs(binary=True)
    result = client.infer("adder", inputs, timeout=20_000_000)
    np.testing.assert_array_equal(result.as_numpy("sum"), a + b)
    with pytest.raises(triton_utils.InferenceServerException, match="deadline"):
        client.infer("adder", inputs, timeout=1)


def test_statistics_split_the_time_of_each_model(client: object) -> None:
    def stats() -> dict[str, object]:
        (model,) = client.get_inference_statistics("adder", "1")["model_stats"]
        return model

    before = stats()
    inputs, _, _ = adder_inputs(binary=True, rows=4)
    client.infer("adder", inputs)
    after = stats()
    assert after["inference_count"] - before["inference_count"] == 4
    assert after["execution_count"] - before["execution_count"] == 1
    for part in ("success", "queue", "compute_input", "compute_infer", "compute_output"):
        assert after["inference_stats"][part]["count"] > 0, part
        assert after["inference_stats"][part]["ns"] > before["inference_stats"][part]["ns"], part
    names = {model["name"] for model in client.get_inference_statistics()["model_stats"]}
    assert names == {"net", "adder"}
