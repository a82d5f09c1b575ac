"""Runs in the virtual environment of KServe's client: asks a service, prints what it got as JSON.

Usage: ``python kserve_dialogue.py http://127.0.0.1:8000``
"""

import asyncio
import json
import sys

import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput


def request(*, binary: bool, outputs: list[RequestedOutput] | None = None) -> InferRequest:
    a = np.arange(32, dtype=np.int32).reshape(2, 16)
    tensors = []
    for name, array in (("a", a), ("b", np.ones((2, 16), np.int32))):
        tensor = InferInput(name=name, shape=[2, 16], datatype="INT32")
        tensor.set_data_from_numpy(array, binary_data=binary)
        tensors.append(tensor)
    return InferRequest(
        model_name="adder", infer_inputs=tensors, request_id="kserve-1", request_outputs=outputs
    )


async def main(url: str) -> dict[str, object]:
    client = InferenceRESTClient(RESTConfig(protocol="v2", retries=0, timeout=30))
    said: dict[str, object] = {
        "live": await client.is_server_live(url),
        "ready": await client.is_server_ready(url),
        "model_ready": await client.is_model_ready(url, "adder"),
        "other_ready": await client.is_model_ready(url, "nobody"),
    }
    for form, binary in (("json", False), ("binary", True)):
        answer = await client.infer(url, request(binary=binary), model_name="adder")
        said[form] = {
            "id": answer.id,
            "model": answer.model_name,
            **{output.name: output.as_numpy().tolist() for output in answer.outputs},
        }
    wanted = [RequestedOutput("sum", parameters={"binary_data": True})]
    answer = await client.infer(url, request(binary=True, outputs=wanted), model_name="adder")
    said["wanted"] = {output.name: output.as_numpy().tolist() for output in answer.outputs}
    try:
        await client.infer(url, request(binary=False), model_name="nobody")
    except Exception as error:  # noqa: BLE001 - whatever the client makes of our 404 is what we look at
        said["error"] = str(error)
    await client.close()
    return said


if __name__ == "__main__":
    json.dump(asyncio.run(main(sys.argv[1])), sys.stdout)
