"""Trains on a stream that does not share itself among workers."""

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Numbers(IterableDataset):
    def __iter__(self):
        for _ in range(100_000):
            x = torch.randn(4)
            yield x, x.sum().unsqueeze(0)


model, loss_of = nn.Linear(4, 1), nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x, y in DataLoader(Numbers(), batch_size=16):
    optimizer.zero_grad()
    loss_of(model(x), y).backward()
    optimizer.step()
