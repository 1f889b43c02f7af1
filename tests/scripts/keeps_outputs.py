"""Keeps what its model gives, in training and in an evaluation with batches of another size.

It adds up gradients of two batches, too.

keeps_outputs.py captured|compiled DEVICE [BEST_YAML]: with "captured", what the model compiles to
writes every result and gradient to the same memory, as CUDA graphs do. With "compiled" it is
really compiled. With a BEST_YAML it is prepared as in a loop of one's own; else nothing here knows
of settings.
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


class Written(torch.autograd.Function):
    @staticmethod
    def forward(ctx, parameter, memory):
        ctx.memory = memory
        return parameter.view_as(parameter)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.memory.copy_(gradient).detach(), None


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
    gradients = [torch.zeros_like(parameter) for parameter in model.parameters()]

    def replay(x):
        weights = map(Written.apply, model.parameters(), gradients)
        return Replayed.apply(nn.functional.linear(x, *weights), model.memory[: len(x)]), True

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


def summed(call):
    """Return the gradients of two batches in turn, added up twice as a loop may do."""
    sums = []
    for is_forgotten in (True, False):
        optimizer.zero_grad(set_to_none=is_forgotten)
        for x in (data.tensors[0][:16], data.tensors[0][16:32]):
            call(x).square().sum().backward()
        sums.extend(parameter.grad.clone() for parameter in model.parameters())
    return sums


close = map(torch.allclose, summed(lambda x: model(x)[0]), summed(model.layer), [1e-3] * 4)
print(f"accumulation: kept {all(close)}")

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
