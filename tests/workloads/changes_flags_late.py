"""Sets a cuDNN flag behind our back, once training has gone on for a while."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

STEPS_BEFORE = 30

steps = []


def build_model():
    return nn.Linear(4, 1)


def build_dataset():
    return TensorDataset(torch.ones(4096, 4))


def compute_loss(model, batch):
    steps.append(1)
    if len(steps) == STEPS_BEFORE:
        torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark
    (rows,) = batch
    return model(rows).square().mean()
