"""Trains with a DataLoader of another class: torchdata's, or one that gives out batches by hand."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if "torchdata" in sys.argv:
    from torchdata.stateful_dataloader import StatefulDataLoader as Loader
elif "wrapped" in sys.argv:

    class Built:
        """Builds each batch in the main process, as loaders of graphs do."""

        def __init__(self, iterator):
            self.iterator = iterator

        def __next__(self):
            x, y = next(self.iterator)
            return x + 1, y

    class Loader(DataLoader):
        """Has an iterator around torch's own."""

        def _get_iterator(self):
            return Built(super()._get_iterator())

else:

    class Loader(DataLoader):
        """Reads through a loader of torch's, as fastai's does."""

        def __iter__(self):
            yield from self._get_iterator()


data = TensorDataset(torch.randn(128, 4), torch.randn(128, 1))
held_out = DataLoader(data, batch_size=64)
loader = Loader(data, batch_size=16)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(10_000):
    with torch.no_grad():
        for x, _ in held_out:
            model(x)
    for number, (x, y) in enumerate(loader):
        if "torchdata" in sys.argv and number == 3:
            assert loader.state_dict()["_num_yielded"] == 4, "it can be resumed here"
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
