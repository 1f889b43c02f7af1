"""A wide hidden layer: each sample of a batch takes about two MiB while it is trained on."""

from plain import build_dataset, compute_loss, evaluate  # noqa: F401
from torch import nn
from torch.optim import SGD, Optimizer

BASELINE = {"batch_size": 128, "num_threads": 1}


def build_model() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 1 << 17), nn.ReLU(), nn.Linear(1 << 17, 2))


def build_optimizer(parameters, **options) -> Optimizer:
    return SGD(parameters, lr=0.001, **options)


def clip_gradients(model: nn.Module) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
