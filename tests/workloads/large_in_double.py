"""A forward pass that holds 600 MiB in float64, for long enough to be seen, and nothing else."""

import time

import plain
import torch
from plain import BASELINE, build_dataset, build_model, build_optimizer  # noqa: F401


def compute_loss(model, batch):
    loss = plain.compute_loss(model, batch)
    if loss.dtype is torch.float64:
        held = b"x" * (600 << 20)
        time.sleep(2.5)
        loss = loss + 0 * len(held)
    return loss
