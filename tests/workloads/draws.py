"""Draws random numbers of its own, and drops out: two seeds give two gradients."""

import torch
from plain import BASELINE, build_dataset, build_optimizer, compute_loss  # noqa: F401
from torch import nn
from torch.nn import functional


class Noisy(nn.Module):
    """Dropout as a module, and once more as a function."""

    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(8, 64)
        self.dropout = nn.Dropout(0.3)
        self.output = nn.Linear(64, 2)

    def forward(self, points):
        hidden = self.dropout(torch.relu(self.hidden(points)))
        return self.output(functional.dropout(hidden, 0.5, self.training))


def build_model():
    return Noisy()
