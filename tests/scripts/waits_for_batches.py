"""Trains on batches for each of which it waits, as for a network; workers hide that."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Remote(TensorDataset):
    def __getitems__(self, indices: list[int]) -> list[tuple[torch.Tensor, ...]]:
        time.sleep(args.seconds)
        return [self[index] for index in indices]


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--seconds", type=float, default=0.03)
args = parser.parse_args()
loader = DataLoader(Remote(torch.randn(1024, 8), torch.randn(1024, 1)), batch_size=16)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(args.epochs):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
