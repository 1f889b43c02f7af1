"""A sample far into the dataset cannot be read."""

import torch
from torch import nn
from torch.utils.data import IterableDataset

DAMAGED = 1000


def build_model():
    return nn.Linear(4, 1)


def build_dataset():
    return Samples()


def compute_loss(model, batch):
    return model(batch).square().mean()


class Samples(IterableDataset):
    def __iter__(self):
        for number in range(100_000):
            if number == DAMAGED:
                raise OSError(f"sample {number} cannot be read")
            yield torch.ones(4)
