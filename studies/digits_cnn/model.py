"""Handwritten digits, told apart by a small convolutional network: the example to read first.

scikit-learn ships 1797 scanned digits of 8 x 8 pixels, so nothing has to be downloaded. They are
enlarged to 32 x 32 and a fifth of them is kept aside, for `evaluate` alone.

What it teaches: a workload is a handful of plain functions, found by their names. With `evaluate`,
accuracy becomes a constraint: settings that train faster but classify worse cannot win.
"""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

# What a first training script usually says; autotune has to beat it.
BASELINE = {"batch_size": 32, "num_workers": 0}

IMAGE_SIZE = 32


def build_model() -> nn.Module:
    """Three convolutions, each halving the image, then one linear layer: 10 scores per image."""
    return nn.Sequential(
        *convolution(1, 32),
        *convolution(32, 64),
        *convolution(64, 128),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def convolution(inputs: int, outputs: int) -> list[nn.Module]:
    """3 x 3 convolution, batch norm and ReLU, then every second pixel dropped."""
    return [
        nn.Conv2d(inputs, outputs, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.MaxPool2d(2),
    ]


def build_dataset() -> Dataset:
    """The training digits as (image, label); image is (1, 32, 32) from 0 to 1."""
    train, _ = load_splits()
    return train


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Cross entropy of a batch: images (batch, 1, 32, 32) and labels (batch,)."""
    images, labels = batch
    return functional.cross_entropy(model(images), labels)


@torch.no_grad()
def evaluate(model: nn.Module, device: torch.device) -> float:
    """The share of the held-out digits that the model reads correctly, from 0 to 1."""
    _, held_out = load_splits()
    images, labels = (tensor.to(device) for tensor in held_out.tensors)
    model.eval()
    predictions = model(images).argmax(dim=1)
    model.train()
    return (predictions == labels).float().mean().item()


def load_splits() -> tuple[TensorDataset, TensorDataset]:
    """Training and held-out digits; the seed is fixed, so every trial gets the same split."""
    digits = load_digits()
    small = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    images = functional.interpolate(small, size=IMAGE_SIZE, mode="bilinear")
    labels = torch.tensor(digits.target)
    splits = train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)
    train_images, held_out_images, train_labels, held_out_labels = splits
    return (
        TensorDataset(train_images, train_labels),
        TensorDataset(held_out_images, held_out_labels),
    )
