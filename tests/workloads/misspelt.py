"""Two names of the contract, one needed and one optional, are misspelt."""

from plain import BASELINE, build_dataset, compute_loss  # noqa: F401
from torch import nn


def build_modle():
    return nn.Linear(8, 2)


def evalute(model, device):
    return 1.0
