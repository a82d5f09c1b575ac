"""Imports something that isn't installed."""

import torch

import not_installed_anywhere  # noqa: F401

net = torch.nn.Linear(2, 2)
