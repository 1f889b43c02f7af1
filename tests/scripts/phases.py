"""Trains as tutorials do: loaders in a dict, phases, gradients switched off inside the loop only.

With "rebuild" all loaders are built anew for each epoch. A stream is looked at before everything.
"""

import multiprocessing
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset


class Numbers(IterableDataset):
    def __iter__(self):
        yield from range(8)


def loaders_of(data):
    return {phase: DataLoader(data[phase], batch_size=8) for phase in ("train", "val")}


data = {phase: TensorDataset(torch.randn(32, 4), torch.randn(32, 1)) for phase in ("train", "val")}
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
stream = DataLoader(Numbers(), batch_size=4)
list(stream)
loaders = loaders_of(data)
for _ in range(3):
    if sys.argv[1:] == ["rebuild"]:
        loaders = loaders_of(data)
    for phase in ("val", "train", "val"):
        for x, y in loaders[phase]:
            with torch.set_grad_enabled(phase == "train"):
                loss = nn.functional.mse_loss(model(x), y)
            if phase == "train":
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
look = DataLoader(data["train"], batch_size=32)
list(look)
workers = {phase: loader.num_workers for phase, loader in loaders.items()}
print(workers, look.num_workers, stream.num_workers, len(multiprocessing.active_children()))
