"""Trains through a task around its model, which has a way of its own to compile what it holds.

task_module.py task|looked at first|in parts: the model may be called on its own before training, or
be one of which the script compiles a part.
"""

import copy
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Task(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def compile(self, backend="inductor", mode=None, **options):
        self.model = torch.compile(self.model, backend=backend, mode=mode, **options)
        return self.model

    def forward(self, x, y):
        output = self.model(x)
        return {"loss": (output - y).square().mean(), "output": output}


what = sys.argv[1]
data = TensorDataset(torch.randn(128, 3, 8, 8), torch.randn(128, 2))
body = nn.Sequential(nn.Conv2d(3, 8, 8), nn.Flatten())
model = nn.Sequential(body, nn.Linear(8, 2))
task = Task(model)
if what == "looked at first":
    copy.deepcopy(model)(data.tensors[0][:1])
    model(data.tensors[0][:1])
if what == "in parts":
    model[0] = torch.compile(body, backend="eager")
optimizer = torch.optim.SGD(task.parameters(), lr=0.01)
for _ in range(10_000):
    for x, y in DataLoader(data, batch_size=16):
        optimizer.zero_grad()
        task(x, y)["loss"].backward()
        optimizer.step()
