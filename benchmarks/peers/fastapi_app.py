"""FastAPI on uvicorn, as its users write it: pydantic in and out, the model called in the handler."""

import numpy as np
import torch
from fastapi import FastAPI
from pydantic import BaseModel

torch.set_num_threads(1)
torch.manual_seed(0)
net = torch.nn.Sequential(
    torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)
).eval()
app = FastAPI()


class Row(BaseModel):
    x: list[float]


class Answer(BaseModel):
    y: list[float]


# ``async`` although the model blocks: the call takes 30 µs, a hand-over to the thread pool more than that.
@app.post("/predict")
async def predict(row: Row) -> Answer:
    with torch.inference_mode():
        output = net(torch.from_numpy(np.array([row.x], dtype=np.float32)))
    return Answer(y=output[0].tolist())
