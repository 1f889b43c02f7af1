"""A model with 20 MB of gradients, for `benchmarks.ddp_settings`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, Optimizer
from torch.utils.data import Dataset, TensorDataset

BASELINE = {"batch_size": 32, "num_threads": 1}
WIDTH, LAYERS, SAMPLES = 1024, 5, 4096


def build_model() -> nn.Module:
    """Return five square layers, of 4 MB each."""
    layers = (part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU()))
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10))


def build_dataset() -> Dataset[Any]:
    """Return random rows with random labels."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(SAMPLES, WIDTH, generator=generator)
    return TensorDataset(rows, torch.randint(10, (SAMPLES,), generator=generator))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the cross-entropy."""
    rows, labels = batch
    return functional.cross_entropy(model(rows), labels)


def build_optimizer(parameters: Any, **options: Any) -> Optimizer:
    """Return SGD, whose update is cheap."""
    return SGD(parameters, lr=0.01, **options)
