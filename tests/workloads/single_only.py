"""Runs in float32 only."""

import torch
from plain import BASELINE, build_dataset, build_optimizer, compute_loss  # noqa: F401
from torch import nn


class Strict(nn.Linear):
    """Refuses what is not float32."""

    def forward(self, points):
        if points.dtype is not torch.float32:
            raise TypeError("float32 only")
        return super().forward(points)


def build_model():
    return Strict(8, 2)
