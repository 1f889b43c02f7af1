"""Compiles its model itself, in one of several ways, and says which keys its state_dict has."""

import itertools
import sys

import torch
from torch import nn

way, steps = sys.argv[1], int(sys.argv[2])
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
match way:
    case "in place":
        model.compile()
    case "options":
        model = torch.compile(model, options={"epilogue_fusion": False})
    case "backend":
        model = torch.compile(model, backend="eager")
    case _:
        model = torch.compile(model)


def loss_of(x: torch.Tensor) -> torch.Tensor:
    return model(x).square().mean()


if way == "nested":
    loss_of = torch.compile(loss_of)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in itertools.islice(itertools.count(), steps):
    if way == "stance" and step == 9:
        torch.compiler.set_stance("default")
    optimizer.zero_grad()
    loss_of(torch.randn(16, 4)).backward()
    optimizer.step()
print(next(iter(model.state_dict())))
