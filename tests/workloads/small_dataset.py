"""The dataset has five samples, fewer than one batch of the baseline."""

import plain
from plain import BASELINE, build_model, compute_loss  # noqa: F401
from torch.utils.data import TensorDataset


def build_dataset():
    return TensorDataset(*plain.build_dataset()[:5])
