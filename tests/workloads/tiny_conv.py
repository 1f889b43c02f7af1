"""A workload that trains in milliseconds: 1024 small images, one convolution, two classes."""

import torch
from torch import nn
from torch.nn import functional
from torch.optim import SGD
from torch.utils.data import TensorDataset

BASELINE = {"batch_size": 8}


def build_model():
    return nn.Sequential(
        nn.Conv2d(3, 8, kernel_size=3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 2)
    )


def build_dataset():
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(1024, 3, 8, 8, generator=generator)
    return TensorDataset(images, (images.mean(dim=(1, 2, 3)) > 0).long())


def compute_loss(model, batch):
    images, labels = batch
    return functional.cross_entropy(model(images), labels)


def build_optimizer(parameters, **options):
    return SGD(parameters, lr=0.1, **options)
