"""A sampler of its own decides what a batch is."""

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, TensorDataset

data = TensorDataset(torch.randn(512, 4), torch.randn(512, 1))
model, loss_of = nn.Linear(4, 1), nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(data, batch_sampler=BatchSampler(SequentialSampler(data), 12, drop_last=False))
for _ in range(1000):
    for x, y in loader:
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()
