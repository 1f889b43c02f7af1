"""Keeps a tensor of 64 KiB from each step."""

import torch
from plain import BASELINE, build_dataset, build_model, build_optimizer  # noqa: F401
from plain import compute_loss as loss_of
from torch import Tensor

kept: list[Tensor] = []


def compute_loss(model, batch):
    kept.append(torch.ones(1 << 14))
    return loss_of(model, batch)
