"""The dataset has no sample."""

import torch
from plain import BASELINE, build_model, compute_loss  # noqa: F401
from torch.utils.data import TensorDataset


def build_dataset():
    return TensorDataset(torch.zeros(0, 8), torch.zeros(0).long())
