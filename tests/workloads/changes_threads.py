"""Changes the number of threads behind autotune's back."""

import plain
import torch
from plain import BASELINE, build_dataset, build_model  # noqa: F401


def compute_loss(model, batch):
    torch.set_num_threads(2)
    return plain.compute_loss(model, batch)
