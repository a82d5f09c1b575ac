"""mosec: one worker, batches of up to 16 rows, at most 2 ms of waiting for a batch to fill."""

import numpy as np
import torch
from mosec import Server, Worker


class Mlp(Worker):
    def __init__(self):
        super().__init__()
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(
            torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)
        ).eval()

    def forward(self, data):
        rows = np.array([item["x"] for item in data], dtype=np.float32)
        with torch.inference_mode():
            return [{"y": row} for row in self.net(torch.from_numpy(rows)).tolist()]


if __name__ == "__main__":
    server = Server()
    server.append_worker(Mlp, num=1, max_batch_size=16, max_wait_time=2)
    server.run()
