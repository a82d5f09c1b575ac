"""torchgate: check, package and serve PyTorch models behind their own gateway.

Importing this package starts nothing and does not import torch.
"""

from torchgate.declare import model

__all__ = ["model"]
