"""Its dataset holds what does not outlive a fork, as tensors on a GPU do not."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Bound(Dataset):
    process = os.getpid()

    def __len__(self):
        return 16

    def __getitem__(self, index):
        if os.getpid() != self.process:
            raise RuntimeError("cannot be used in a forked process")
        return torch.tensor([float(index)])


torch.manual_seed(0)
model = nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(Bound(), batch_size=4, shuffle=True)
order = []
for _ in range(2):
    for batch in loader:
        model(batch).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        order += batch.int().flatten().tolist()
print(order)
