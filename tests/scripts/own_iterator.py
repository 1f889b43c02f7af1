"""Trains with a DataLoader whose class goes through the dataset by itself."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Resumable(DataLoader):
    """Knows at which batch it is."""

    position = 0

    def __iter__(self):
        if "torch's" in sys.argv:  # as fastai's loader reads through one of torch
            yield from self._get_iterator()
            return
        while self.position < len(self.dataset):
            start, self.position = self.position, self.position + self.batch_size
            yield self.dataset[start : self.position]
        self.position = 0


data = TensorDataset(torch.randn(128, 4), torch.randn(128, 1))
held_out = DataLoader(data, batch_size=64)
loader = Resumable(data, batch_size=16)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(10_000):
    with torch.no_grad():
        for x, _ in held_out:
            model(x)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
