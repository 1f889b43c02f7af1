"""Trains on a device, in the way that is named, and writes the loss of each backward pass."""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device, way, last, file = torch.device(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
short = torch.bfloat16 if device.type == "cpu" else torch.float16
has_scaler = way in ("scaled", "divided after scaling")
passes = 2 if way == "divided after scaling" else 1
scaler = torch.amp.GradScaler(device.type, init_scale=1024.0, enabled=has_scaler)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
points = torch.randn(256, 8)
data = TensorDataset(points, points[:, 0].gt(0).long())
# Their numbers are read at the end, because reading one waits for the device.
losses: list[torch.Tensor] = []
while True:
    for x, y in DataLoader(data, batch_size=16, shuffle=True):
        with torch.autocast(device.type, short, enabled=has_scaler):
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        losses.append(loss.detach() / passes)
        if way == "divided after scaling":
            (scaler.scale(loss) / passes).backward()
        else:
            scaler.scale(loss).backward()
        if way == "overwritten":  # as the next replay of a CUDA graph does
            loss.detach().fill_(9.0)
        if len(losses) == passes * last:
            Path(file).write_text("\n".join(str(one.item()) for one in losses))
        if len(losses) % passes == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
