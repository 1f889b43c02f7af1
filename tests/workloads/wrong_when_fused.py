"""Takes another learning rate where it is told to fuse."""

from plain import BASELINE, build_dataset, build_model, compute_loss, evaluate  # noqa: F401
from torch.optim import SGD


def build_optimizer(parameters, **options):
    return SGD(parameters, lr=0.1 if options.get("fused") else 0.5, **options)
