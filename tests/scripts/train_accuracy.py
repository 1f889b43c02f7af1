"""Reads its training loader once more after each epoch, for the accuracy on it.

Its argument says where gradients are switched off: around the loop, or inside of it.
"""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

points = torch.randn(32, 4)
train = DataLoader(TensorDataset(points, points.sum(dim=1).gt(0).long()), batch_size=8)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@torch.no_grad()
def right_of(x, y):
    time.sleep(0.02)
    return (model(x).argmax(dim=1) == y).sum().item()


def accuracy():
    if sys.argv[1] == "inside":
        return sum(right_of(x, y) for x, y in train) / len(points)
    with torch.no_grad():
        return sum(right_of(x, y) for x, y in train) / len(points)


for epoch in range(100_000):
    for x, y in train:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    print(f"epoch {epoch} train accuracy {accuracy():.3f}")
