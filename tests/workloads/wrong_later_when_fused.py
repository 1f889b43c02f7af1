"""Takes the first step as it should where it is told to fuse, and the others uphill."""

from plain import BASELINE, build_dataset, build_model, compute_loss, evaluate  # noqa: F401
from torch.optim import SGD


class Turning(SGD):
    """Its learning rate changes sign after the first step where it is fused."""

    def step(self, closure=None):
        loss = super().step(closure)
        for group in self.param_groups:
            if group["fused"]:
                group["lr"] = -abs(group["lr"])
        return loss


def build_optimizer(parameters, **options):
    return Turning(parameters, lr=0.01, **options)
