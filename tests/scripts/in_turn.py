"""Trains two models: one after the other, or alternately on each batch."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(320, 4), torch.randn(320, 1))
loader = DataLoader(data, batch_size=16)


def step(model, optimizer, x, y):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()


def built():
    model = nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def fold():
    model, optimizer = built()
    for x, y in loader:
        step(model, optimizer, x, y)


if sys.argv[1] == "one after the other":
    for _ in range(1000):
        fold()
one, other = built(), built()
for _ in range(1000):
    for x, y in loader:
        step(*one, x, y)
        step(*other, x, y)
