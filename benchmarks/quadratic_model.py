"""Linear regression by SGD: a quadratic problem, for `benchmarks.time_to_loss`.

Small batches take many steps for few samples, until the noise of their gradients keeps the loss
above what large ones reach. Large batches take the same steps on more samples each.
"""

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

BASELINE = {"batch_size": 1024, "num_workers": 0}
FEATURES, SAMPLES = 256, 40_000


def build_model() -> nn.Module:
    """Weights that begin at zero, so that every seed begins with the same loss."""
    model = nn.Linear(FEATURES, 1, bias=False)
    nn.init.zeros_(model.weight)
    return model


def build_dataset() -> Dataset:
    """Features of unequal scale, and targets with noise of variance 0.04."""
    generator = torch.Generator().manual_seed(0)
    scales = torch.logspace(-1, 0, FEATURES)
    features = torch.randn(SAMPLES, FEATURES, generator=generator) * scales
    weights = torch.randn(FEATURES, 1, generator=generator) / FEATURES**0.5
    noise = 0.2 * torch.randn(SAMPLES, 1, generator=generator)
    return TensorDataset(features, features @ weights + noise)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Mean squared error."""
    features, targets = batch
    return nn.functional.mse_loss(model(features), targets)


def build_optimizer(parameters) -> torch.optim.Optimizer:
    """Plain SGD, whose learning rate stays the same for all batches."""
    return torch.optim.SGD(parameters, lr=0.01)
