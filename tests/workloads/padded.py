"""Sequences of unequal length, padded to the longest of their batch; few are long.

It writes down the lengths of the last batch, in the folder that LENGTHS names.
"""

import os
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset

BASELINE = {"batch_size": 8}
SHORT, LONG = 10, 1000


class Sequences(Dataset):
    """Every fiftieth is long."""

    def __len__(self):
        return 20_000

    def __getitem__(self, index):
        return torch.ones(SHORT if index % 50 else LONG), torch.tensor(0.0)


def build_model():
    return nn.Linear(1, 1)


def build_dataset():
    return Sequences()


def collate_fn(samples):
    rows = [row for row, _ in samples]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True), torch.stack([y for _, y in samples])


def compute_loss(model, batch):
    rows, targets = batch
    if "LENGTHS" in os.environ:
        lengths = rows.sum(dim=1).int().tolist()
        Path(os.environ["LENGTHS"]).write_text(" ".join(map(str, lengths)))
    return (model(rows.mean(dim=1, keepdim=True)).squeeze(1) - targets).square().mean()
