"""Trains as tutorials do: loaders in a dict, phases, gradients switched off inside the loop only.

After the first epoch all are built anew, in another line. A stream is looked at before everything.
"""

import multiprocessing

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
workers = []
for epoch in range(3):
    if epoch > 0:
        loaders = loaders_of(data)
    for phase in ("val", "train", "val"):
        for x, y in loaders[phase]:
            with torch.set_grad_enabled(phase == "train"):
                loss = nn.functional.mse_loss(model(x), y)
            if phase == "train":
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    workers.append([loaders["train"].num_workers, loaders["val"].num_workers])
look = DataLoader(data["train"], batch_size=32)
list(look)
print(workers, look.num_workers, stream.num_workers, len(multiprocessing.active_children()))
