"""Loses its momentum after the first step where it is told to fuse."""

from tiny_conv import BASELINE, build_dataset, build_model, compute_loss  # noqa: F401
from torch.optim import SGD


class Forgetful(SGD):
    """Plain gradient descent from the second step on where it is fused."""

    def step(self, closure=None):
        loss = super().step(closure)
        for group in self.param_groups:
            if group["fused"]:
                group["momentum"] = 0.0
        return loss


def build_optimizer(parameters, **options):
    return Forgetful(parameters, lr=0.01, momentum=0.9, **options)
