"""A small model for `model.toml`: four features to three scores."""

import torch

net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
example_inputs = torch.zeros(3, 4)
