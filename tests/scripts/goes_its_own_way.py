"""Decides for itself about threads, compilation, autocast and the optimizer's kernel."""

import itertools
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
data = TensorDataset(torch.randn(96, 4), torch.randn(96, 1))
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=False)
steps = int(sys.argv[2]) if len(sys.argv) > 1 else 6
batches = (batch for _ in range(steps) for batch in DataLoader(data, batch_size=16))
for x, y in itertools.islice(batches, steps):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(x)
    assert out.dtype == torch.bfloat16
    nn.functional.mse_loss(out.float(), y).backward()
    optimizer.step()
print(torch.get_num_threads())
