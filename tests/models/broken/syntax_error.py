import torch

def net(:
    return torch.nn.Linear(2, 2)
