"""compute_loss reads address zero."""

import ctypes

from plain import BASELINE, build_dataset, build_model  # noqa: F401
from torch import nn


def compute_loss(model: nn.Module, batch: object) -> object:
    return ctypes.string_at(0)
