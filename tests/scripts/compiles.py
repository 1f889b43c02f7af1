"""Compiles its model in place, or a function in which the model is called, and its loss.

By a backend that needs no compiler.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(128, 4), torch.randn(128, 1))
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loss_of = torch.compile(nn.MSELoss(), backend="eager")


def loss_on(x, y):
    return loss_of(model(x), y)


if sys.argv[1] == "in place":
    model.compile(backend="eager")
if sys.argv[1] == "a function":
    loss_of = nn.MSELoss()
    loss_on = torch.compile(loss_on, backend="eager")

loader = DataLoader(data, batch_size=16)
for _ in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        loss_on(x, y).backward()
        optimizer.step()
