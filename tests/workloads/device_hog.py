"""Runs out of device memory with a batch above 32, in the words of the CUDA allocator."""

import plain
import torch
from plain import BASELINE, build_dataset, build_model, build_optimizer, evaluate  # noqa: F401


def compute_loss(model, batch):
    if len(batch[0]) > 32:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
    return plain.compute_loss(model, batch)
