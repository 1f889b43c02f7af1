"""A workload whose loss compares the samples of a batch with each other."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

BASELINE = {"batch_size": 8}


def build_model():
    return nn.Linear(6, 4)


def build_dataset():
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn(256, 6, generator=generator))


def compute_loss(model, batch):
    (samples,) = batch
    found, others = (functional.normalize(model(s)) for s in (samples, samples.roll(1, dims=1)))
    return functional.cross_entropy(5 * found @ others.T, torch.arange(len(samples)))
