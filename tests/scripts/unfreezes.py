"""Trains the head, then all layers with another optimizer; its argument says what of the first."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

what = sys.argv[1]
data = TensorDataset(torch.randn(640, 4), torch.randn(640, 1))
body, head = nn.Linear(4, 4), nn.Linear(4, 1)
model = nn.Sequential(body, head)
body.requires_grad_(False)
optimizer = first = torch.optim.AdamW(head.parameters())
steps = 0
for _ in range(20):
    for x, y in DataLoader(data, batch_size=16):
        if steps == 5:
            body.requires_grad_(True)
            parameters = body.parameters() if what == "idles" else model.parameters()
            optimizer = torch.optim.AdamW(parameters)
            if what == "gone":
                del first
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        steps += 1
