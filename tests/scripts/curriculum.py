"""Changes its dataset between epochs, and says which it was trained with."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


class Shift:
    by = 0


class Steeper(Dataset):
    def __init__(self):
        self.epoch, self.transforms = 0, [[Shift()]]

    def __len__(self):
        return 16

    def __getitem__(self, index):
        return torch.full((4,), float(self.epoch + self.transforms[0][0].by))


data = Steeper()
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(Subset(data, range(16)), batch_size=8)
seen = []
for epoch in (0, 0, 1, 2):
    if "in a list" in sys.argv:
        data.transforms[0][0].by = epoch
    else:
        data.epoch = epoch
    for batch in loader:
        model(batch).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    seen.append(batch[0, 0].item())
print(seen)
