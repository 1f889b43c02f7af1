"""Draws its batches from an array; its argument says how it takes a step.

No DataLoader feeds training. One may be read before.
"""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("way")
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--evaluate-every", type=int, default=10**9)
parser.add_argument("--steps", type=int, default=100_000)
args = parser.parse_args()

points = torch.randn(512, 4)
targets = points.sum(dim=1, keepdim=True)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
weights = list(model.parameters())
if args.way == "tensors":
    weights = [torch.zeros(4, 1, requires_grad=True)]
loader = DataLoader(TensorDataset(points, targets), batch_size=16)
kept = list(loader) if args.way == "kept batches" else None
if args.way == "compiled model":
    model = torch.compile(model, backend="eager")
if args.way == "traced first":
    torch.jit.trace(model, points[:2])
if args.way == "validated first":
    with torch.no_grad():
        for x, _ in loader:
            model(x)


def draw():
    if kept:
        return random.choice(kept)
    rows = torch.randint(len(points), (args.batch_size,))
    return points[rows], targets[rows]


def loss_on(x, y):
    if args.way == "tensors":
        return (x @ weights[0] - y).square().mean()
    if args.way == "checkpointed":
        hidden = checkpoint(model[:2], x.requires_grad_(), use_reentrant=True)
        return nn.functional.mse_loss(model[2](hidden), y)
    if args.way == "keywords":
        return nn.functional.mse_loss(model(input=x), y)
    if args.way in ("vector", "weighted"):
        return (model(x) - y).square()
    return nn.functional.mse_loss(model(x), y)


def step_by_hand():
    loss = loss_on(*draw())
    loss.backward(torch.ones_like(loss) if args.way == "weighted" else None)
    for weight in weights:
        weight.data.sub_(0.01 * weight.grad)
        weight.grad = None


def evaluate():
    model.eval()
    with torch.no_grad():
        for _ in range(5):
            model(draw()[0])
            time.sleep(0.1)
    model.train()


def step_optimizer():
    for _ in range(args.accumulate):
        (loss_on(*draw()) / args.accumulate).backward()
    step()
    optimizer.zero_grad()


def step_two_losses():
    x, y = draw()
    output = model(x)
    nn.functional.mse_loss(output, y).backward(retain_graph=True)
    (0.01 * output.abs().mean()).backward()
    optimizer.step()
    optimizer.zero_grad()


def step_lbfgs():
    x, y = draw()

    def closure():
        optimizer.zero_grad()
        loss = loss_on(x, y)
        loss.backward()
        return loss

    optimizer.step(closure)


train = step_by_hand
if args.way == "compiled loss":
    train = torch.compile(step_by_hand, backend="eager")
if args.way in ("optimizer", "compiled step"):
    train, optimizer = step_optimizer, torch.optim.AdamW(weights)
    step = optimizer.step
    if args.way == "compiled step":
        step = torch.compile(step, backend="eager")
if args.way == "two losses":
    train, optimizer = step_two_losses, torch.optim.AdamW(weights)
if args.way == "lbfgs":
    train, optimizer = step_lbfgs, torch.optim.LBFGS(weights, lr=0.1, max_iter=4)
for number in range(args.steps):
    if number % args.evaluate_every == 0:
        evaluate()
    train()
