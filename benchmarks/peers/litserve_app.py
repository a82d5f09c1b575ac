"""LitServe: one worker, one API process. Arguments: port, largest batch (1 was its fastest setting)."""

import sys

import litserve
import numpy as np
import torch


class Mlp(litserve.LitAPI):
    def setup(self, device):  # noqa: ARG002
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(
            torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)
        ).eval()

    def decode_request(self, request):
        return torch.from_numpy(np.array(request["x"], dtype=np.float32))

    def batch(self, inputs):
        return torch.stack(inputs)

    def predict(self, x, **kwargs):  # noqa: ARG002
        with torch.inference_mode():
            return self.net(x)

    def unbatch(self, output):
        return list(output)

    def encode_response(self, output):
        return {"y": output.tolist()}


if __name__ == "__main__":
    port, largest = int(sys.argv[1]), int(sys.argv[2])
    api = Mlp(max_batch_size=largest, batch_timeout=0.001) if largest > 1 else Mlp()
    litserve.LitServer(api, accelerator="cpu").run(
        host="127.0.0.1",
        port=port,
        generate_client_file=False,
        log_level="error",
        num_api_servers=1,
    )
