"""Sequences of one to nine tokens, padded to the longest of their batch; no padding is counted.

MISCOUNTS in the environment makes the count one that is no number of tokens.
"""

import os

import torch
from torch import nn
from torch.utils.data import Dataset

BASELINE = {"batch_size": 8}


class Sequences(Dataset):
    """Sample n has one token more than n modulo nine: five in the mean."""

    def __len__(self):
        return 900

    def __getitem__(self, index):
        return torch.ones(index % 9 + 1)


def build_model():
    return nn.Linear(1, 1)


def build_dataset():
    return Sequences()


def collate_fn(samples):
    return nn.utils.rnn.pad_sequence(samples, batch_first=True)


def compute_loss(model, batch):
    return model(batch.mean(dim=1, keepdim=True)).square().mean()


def count_tokens(batch):
    return 0.5 if "MISCOUNTS" in os.environ else int(batch.sum())
