"""Halves its learning rate after the first step where it is told to fuse."""

from tiny_conv import BASELINE, build_dataset, build_model, compute_loss  # noqa: F401
from torch.optim import AdamW

RATE = 1e-3


class Slowing(AdamW):
    """At half the rate from the second step on where it is fused."""

    def step(self, closure=None):
        loss = super().step(closure)
        for group in self.param_groups:
            if group["fused"]:
                group["lr"] = RATE / 2
        return loss


def build_optimizer(parameters, **options):
    return Slowing(parameters, lr=RATE, **options)
