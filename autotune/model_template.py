"""A workload for autotune: plain functions, found by their names.

Try it as it is:   autotune search model.py --space quick
Then put in your own model and data. Only the three functions marked NEEDED are needed.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

# The settings that you train with today. The search starts from them and compares against them.
# Omitted settings have PyTorch's defaults; `autotune settings` lists all settings.
BASELINE = {"batch_size": 32, "num_workers": 0}


# NEEDED. The model on the CPU, freshly initialised; autotune moves it to the device.
def build_model() -> nn.Module:
    """Return the model to train."""
    return nn.Sequential(
        nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    )


# NEEDED. The training set: anything with __getitem__ and __len__, or an IterableDataset. A torch
# DataLoader reads it, so __getitem__ may decode and augment.
def build_dataset() -> Dataset[tuple[Tensor, ...]]:
    """Return the training set."""
    return _made_up_points(seed=0, samples=8192)


# NEEDED. The scalar loss of one batch, which is on the device already. autotune adds autocast,
# compilation and the backward pass: no zero_grad, no backward, no step here.
def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the training loss of one batch."""
    points, labels = batch
    return nn.functional.cross_entropy(model(points), labels)


# Optional; default AdamW(lr=1e-3). `options` carries settings of the search, such as fused=True:
# pass them on.
def build_optimizer(parameters: Iterator[nn.Parameter], **options: Any) -> torch.optim.Optimizer:
    """Return the optimizer that you train with."""
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, **options)


# Optional; higher is better. Default: the loss on a held-out slice of the training set. It decides
# whether a configuration trains as well as yours.
def evaluate(model: nn.Module, device: torch.device) -> float:
    """Return the accuracy on points that training never sees."""
    points, labels = _made_up_points(seed=1, samples=2048).tensors
    with torch.no_grad():
        guesses = model(points.to(device)).argmax(dim=1).cpu()
    return float((guesses == labels).float().mean())


# Also optional: collate_fn(samples), given to the DataLoader; clip_gradients(model), called before
# each step of the optimizer; checkpoint(model), which wraps in place the parts to be recomputed in
# the backward pass (torch.utils.checkpoint).


def _made_up_points(seed: int, samples: int) -> TensorDataset:
    """Noisy points around ten centres. Replace this with your data."""
    centres = torch.randn(10, 64, generator=torch.Generator().manual_seed(1234))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 10, (samples,), generator=generator)
    noise = torch.randn(samples, 64, generator=generator)
    return TensorDataset(centres[labels] + 2 * noise, labels)
