"""Runs its model under autocast itself, in one of several ways, and says what it got."""

import itertools
import sys
from contextlib import nullcontext

import torch
from torch import nn

way, steps = sys.argv[1], int(sys.argv[2])
dtype = torch.float16 if way == "scales" else torch.bfloat16
under = torch.autocast("cpu", dtype=dtype)
around = under if way in ("outside", "scales", "short") else nullcontext()


class Model(nn.Sequential):
    """A model that switches autocast on in its forward, as accelerate has it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if way not in ("inside", "compiled"):
            return super().forward(x)
        with torch.autocast("cpu", dtype=dtype):
            return super().forward(x)


model = Model(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
if way == "short":
    model = model.to(dtype)
if way == "compiled":
    model = torch.compile(model)
scaler = torch.amp.GradScaler("cpu", enabled=way == "scales")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
if way == "by hand":
    torch.set_autocast_dtype("cpu", dtype)
    torch.set_autocast_enabled("cpu", True)
for step in itertools.islice(itertools.count(), steps):
    x = torch.randn(16, 4)
    optimizer.zero_grad()
    with around:
        out = model(x)
    scaler.scale(out.float().square().mean()).backward()
    scaler.step(optimizer)
    scaler.update()
    if step == 5:
        print(out.dtype, flush=True)
with torch.no_grad(), under:
    print("evaluates in", model(torch.randn(16, 4)).dtype)
