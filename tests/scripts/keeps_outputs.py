"""Keeps what its model gives, in training and in an evaluation with batches of another size.

keeps_outputs.py captured|compiled DEVICE [BEST_YAML]: with "captured", what the model compiles to
writes every result to the same memory, as CUDA graphs do. With "compiled" it is really compiled.
With a BEST_YAML it is prepared as in a loop of one's own; else nothing here knows of settings.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Replayed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, computed, memory):
        memory.data.copy_(computed)
        return memory.data

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)
        self.memory = torch.zeros(16, 1)

    def forward(self, x):
        return self.layer(x), torch.compiler.is_compiling()


what, device, *best = sys.argv[1:]
torch.manual_seed(0)
data = TensorDataset(torch.randn(128, 4, device=device), torch.randn(128, 1, device=device))
model = Model().to(device)


def capture(_, **options):
    def replay(x):
        return Replayed.apply(model.layer(x), model.memory[: len(x)]), True

    return replay


if what == "captured":
    torch.compile = capture
if best:
    import autotune

    model = autotune.load(best[0]).prepare(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def held_out(size):
    return [x for x, _ in DataLoader(data, batch_size=size)]


kept, copies = [], []
for x, y in DataLoader(data, batch_size=16):
    optimizer.zero_grad()
    out, compiled = model(x)
    kept.append(out)
    copies.append(out.detach().clone())
    nn.functional.mse_loss(out, y).backward()
    optimizer.step()
print(f"training: compiled {compiled}, kept {all(map(torch.equal, kept, copies))}")

with torch.no_grad():
    given = [model(x) for x in held_out(10)]
    right = [model.layer(x) for x in held_out(10)]
same = all(torch.equal(out, expected) for (out, _), expected in zip(given, right, strict=True))
print(f"evaluation: compiled {given[0][1]}, kept {same}")

given = [model(x)[0] for x in held_out(16)]
right = [model.layer(x) for x in held_out(16)]
near = all(
    torch.allclose(out, expected, atol=1e-4) for out, expected in zip(given, right, strict=True)
)
print(f"evaluation with gradients: kept {near}")
