"""Evaluation takes more memory than training: 600 MiB, or in other settings more than there is."""

import time

import torch
from plain import BASELINE, build_dataset, build_model, compute_loss  # noqa: F401


def evaluate(model, device):
    if torch.get_num_threads() == 2:
        raise MemoryError
    held = b"x" * (600 << 20)
    time.sleep(2.5)  # long enough to be seen
    return float(len(held))
