"""Sequences of unequal length, padded to the longest of their batch; few are long.

pads.py LENGTHS [--ahead] writes down how long the longest sample of each batch is. With --ahead it
takes the next batch before it trains on the last one, as accelerate's loaders do.
"""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SHORT, LONG = 10, 1000


class Sequences(Dataset):
    """Every fiftieth is long."""

    def __len__(self):
        return 20_000

    def __getitem__(self, index):
        return {"label": 0.0, "row": torch.ones(SHORT if index % 50 else LONG)}


def collate(samples):
    rows = nn.utils.rnn.pad_sequence([one["row"] for one in samples], batch_first=True)
    return rows, torch.tensor([one["label"] for one in samples])


def ahead(loader):
    batches = iter(loader)
    batch = next(batches)
    for following in batches:
        yield batch
        batch = following
    yield batch


model = nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(Sequences(), batch_size=8, collate_fn=collate)
with Path(sys.argv[1]).open("w") as lengths:
    for _ in range(100):
        for rows, targets in ahead(loader) if "--ahead" in sys.argv else loader:
            print(*rows.sum(dim=1).int().tolist(), file=lengths, flush=True)
            optimizer.zero_grad()
            (model(rows.mean(dim=1, keepdim=True)).squeeze(1) - targets).square().mean().backward()
            optimizer.step()
