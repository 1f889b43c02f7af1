"""Fashion-MNIST, ten kinds of clothing in 28 x 28 pixels, read through torchvision.

The one example that downloads: about 30 MB, once, where the files are not there yet. They are
looked for in $AUTOTUNE_DATA, else in ~/.cache/torch-datasets.

What it teaches: how an ordinary training script becomes a workload. The dataset, the optimizer
and the test loop stay what they were; each only gets a function with a name that autotune knows.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import Parameter, functional
from torch.optim import SGD, Optimizer
from torch.utils.data import DataLoader, Dataset, Subset
from torchvision.datasets import FashionMNIST
from torchvision.transforms import ToTensor

BASELINE = {"batch_size": 64, "num_workers": 1}

TEST_IMAGES = 2000  # a fifth of the test set, so that trials stay short


def build_model() -> nn.Module:
    """Two convolutions and two linear layers: 10 scores per image."""
    return nn.Sequential(
        nn.Conv2d(1, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def build_dataset() -> Dataset:
    """The 60000 training images as (image, label); image is (1, 28, 28) from 0 to 1."""
    return load_images(train=True)


def build_optimizer(parameters: Iterable[Parameter], **options: bool) -> Optimizer:
    """SGD with momentum; `options` is what autotune decides, such as fused=True."""
    return SGD(parameters, lr=0.02, momentum=0.9, **options)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Cross entropy of a batch: images (batch, 1, 28, 28) and labels (batch,)."""
    images, labels = batch
    return functional.cross_entropy(model(images), labels)


@torch.no_grad()
def evaluate(model: nn.Module, device: torch.device) -> float:
    """The share of 2000 test images that the model names correctly, from 0 to 1."""
    images = load_images(train=False)
    subset = Subset(images, range(min(TEST_IMAGES, len(images))))
    correct = 0
    model.eval()
    for batch, labels in DataLoader(subset, batch_size=500):
        correct += (model(batch.to(device)).argmax(dim=1) == labels.to(device)).sum().item()
    model.train()
    return correct / len(subset)


def load_images(*, train: bool) -> FashionMNIST:
    """The training or the test images; torchvision downloads only what is not on disk."""
    root = os.environ.get("AUTOTUNE_DATA", Path.home() / ".cache" / "torch-datasets")
    return FashionMNIST(root, train=train, transform=ToTensor(), download=True)
