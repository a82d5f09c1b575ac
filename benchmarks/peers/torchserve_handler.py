"""TorchServe handler: one worker, batches of up to 16, at most 2 ms of waiting (see the catalog)."""

import numpy as np
import torch
from ts.torch_handler.base_handler import BaseHandler


class Mlp(BaseHandler):
    def initialize(self, context):
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)
        ).eval()
        self.device = "cpu"
        self.context = context
        self.manifest = context.manifest
        self.initialized = True

    def preprocess(self, data):
        rows = [(item.get("body") or item.get("data"))["x"] for item in data]
        return torch.from_numpy(np.array(rows, dtype=np.float32))

    def inference(self, data, *args, **kwargs):  # noqa: ARG002
        with torch.inference_mode():
            return self.model(data)

    def postprocess(self, data):
        return [{"y": row} for row in data.tolist()]
