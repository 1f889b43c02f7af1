"""Compiles its model itself, and again: once while it is timed, or in every step."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

# More than the warm-up takes, fewer than six blocks of 0.02 s on a slow processor.
STEPS_BEFORE = 40


class Changing(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 2)
        self.mode = "first"

    def forward(self, points):
        scores = self.layer(points)
        return scores if self.mode == "first" else scores * 2


data = TensorDataset(torch.randn(128, 8), torch.randint(0, 2, (128,)))
model = Changing()
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.compiler.reset()
step = 0
for _ in range(10000):
    for points, labels in DataLoader(data, batch_size=8):
        step += 1
        if step == STEPS_BEFORE:
            model.mode = "second"
        if sys.argv[1] == "in every step":
            torch.compiler.reset()
        optimizer.zero_grad()
        nn.functional.cross_entropy(compiled(points), labels).backward()
        optimizer.step()
