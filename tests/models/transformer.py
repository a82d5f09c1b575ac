"""A text encoder: token ids and a mask of the same length, at most 64 tokens, a dict as answer."""

import torch
from torch import nn

torch.manual_seed(0)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(100, 16)
        self.positions = nn.Embedding(64, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 3)

    def forward(self, ids, mask=None, scale=1.0):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        padding = None if mask is None else mask == 0
        x = self.encoder(x, src_key_padding_mask=padding) * scale
        return {"tokens": x, "logits": self.head(x[:, 0])}


example_inputs = {
    "ids": torch.randint(0, 100, (2, 12)),
    "mask": torch.ones(2, 12, dtype=torch.int64),
}
