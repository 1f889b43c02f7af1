"""A wide hidden layer: each sample of a batch takes about two MiB while it is trained on."""

from plain import build_dataset, compute_loss, evaluate  # noqa: F401
from torch import nn
from torch.optim import SGD

BASELINE = {"batch_size": 128, "num_threads": 1}


def build_model():
    return nn.Sequential(nn.Linear(8, 1 << 17), nn.ReLU(), nn.Linear(1 << 17, 2))


def build_optimizer(parameters, **options):
    return SGD(parameters, lr=0.001, **options)


def clip_gradients(model):
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
