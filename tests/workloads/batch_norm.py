"""A convolution with BatchNorm: a batch in parts has other means than the whole."""

from tiny_conv import BASELINE, build_dataset, build_optimizer, compute_loss  # noqa: F401
from torch import nn


def build_model():
    return nn.Sequential(
        nn.Conv2d(3, 8, kernel_size=3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 6 * 6, 2),
    )
