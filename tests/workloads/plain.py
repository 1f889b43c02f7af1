"""Trains in milliseconds and well, at any batch size. The other workloads borrow its parts."""

import torch
from torch import nn
from torch.nn import functional
from torch.optim import SGD
from torch.utils.data import TensorDataset

# One thread: two of them wait for each other where other tests keep the cores busy.
BASELINE = {"batch_size": 8, "num_threads": 1}


def build_model():
    return nn.Linear(8, 2)


def build_dataset():
    return _points(seed=0, count=256)


def compute_loss(model, batch):
    points, labels = batch
    return functional.cross_entropy(model(points), labels)


def build_optimizer(parameters, **options):
    return SGD(parameters, lr=0.5, **options)


def evaluate(model, device):
    points, labels = _points(seed=1, count=256).tensors
    return float((model(points).argmax(dim=1) == labels).float().mean())


def _points(seed, count):
    """Two clouds so far apart that every training tells them apart."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    noise = torch.randn(count, 8, generator=generator)
    return TensorDataset(noise + 8 * (labels[:, None] - 0.5), labels)
