"""Models with parameters that no step uses, or some do not, or that fail; `KIND` says which."""

import os

import torch
from plain import BASELINE, build_dataset, build_optimizer, compute_loss, evaluate  # noqa: F401
from torch import nn

KIND = os.environ.get("AUTOTUNE_TEST_KIND", "unused")


class Parts(nn.Module):
    def __init__(self):
        super().__init__()
        self.always, self.other = nn.Linear(8, 2), nn.Linear(8, 2)

    def forward(self, points):
        first = self.always(points)
        if KIND == "fails" and os.environ.get("RANK") == "1":
            raise ValueError("rank 1 is too small")
        if KIND == "sometimes" and torch.rand(()) < 0.5:
            first = first + self.other(points)
        return first


def build_model():
    return Parts()
