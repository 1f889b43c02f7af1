"""Training holds hardly more than parameters, gradients and the optimizer's state."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

BASELINE = {"batch_size": 8, "num_threads": 1}

_WIDTH = 2000


def build_model():
    return nn.Sequential(*(nn.Linear(_WIDTH, _WIDTH) for _ in range(3)))


def build_dataset():
    return TensorDataset(torch.randn(256, _WIDTH))


def compute_loss(model, batch):
    return model(batch[0]).square().mean()
