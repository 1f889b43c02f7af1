"""Differentiates by torch's own argument names, with the `grad` that its first lines import.

Its argument says who updates the weights: an optimizer, or the script by hand.
"""

import sys

import torch
from torch import nn
from torch.autograd import backward, grad

points = torch.randn(16, 4)
critic = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
weights = list(critic.parameters())
optimizer = torch.optim.SGD(weights, lr=0.01) if sys.argv[1] == "an optimizer" else None


def step():
    x = points.clone().requires_grad_()
    scores = critic(x)
    if optimizer is None:
        gradients = grad(outputs=scores.square().mean(), inputs=weights)
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.sub_(0.01 * gradient)
        return
    ones = torch.ones_like(scores)
    (slope,) = grad(outputs=scores, inputs=x, grad_outputs=ones, create_graph=True)
    optimizer.zero_grad()
    backward(tensors=scores.mean() + (slope.norm(dim=1) - 1).square().mean())
    optimizer.step()


for _ in range(int(sys.argv[2])):
    step()
