"""A model that computes again what it has, `repeats` times; what it learns is always the same."""

import torch
from plain import build_dataset, build_optimizer, compute_loss, evaluate  # noqa: F401
from torch import nn

BASELINE = {"batch_size": 8, "num_threads": 1}
# A product of this size takes a few times as long as a training step of the rest.
SIZE = 256


class Repeating(nn.Linear):
    def __init__(self, repeats):
        super().__init__(8, 2)
        self.repeats = repeats
        self.square = torch.eye(SIZE)

    def forward(self, points):
        with torch.no_grad():
            for _ in range(self.repeats):
                self.square = self.square @ self.square
        return super().forward(points)


def build_model(repeats=4, label="today"):
    """Build it; `label` is for people, and changes nothing."""
    return Repeating(repeats)
