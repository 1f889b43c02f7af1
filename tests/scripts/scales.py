"""Trains with a gradient scaler that begins far too high, so that its first steps are skipped."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126, growth_interval=10**6)
data = TensorDataset(1000 * torch.ones(64, 4))
for _ in range(100_000):
    for (rows,) in DataLoader(data, batch_size=16):
        optimizer.zero_grad()
        scaler.scale(model(rows).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
