"""build_model ends the process without Python noticing."""

import os

from plain import BASELINE, build_dataset, compute_loss  # noqa: F401
from torch import nn


def build_model() -> nn.Module:
    os._exit(7)
