"""Small models of common kinds, each trained by a common optimizer, for the numerics check.

They train for a few steps in milliseconds, on data made up from a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.utils.data import Dataset, TensorDataset

from autotune.training.workload import Workload

SAMPLES, CLASSES, LENGTH, ALPHABET = 512, 4, 16, 32


class Conv(nn.Module):
    """A residual network of three convolutions with BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16))
        self.third = nn.Sequential(nn.Conv2d(16, 32, 3, stride=2), nn.BatchNorm2d(32), nn.ReLU())
        self.scores = nn.Linear(32, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores (batch, 4) of images (batch, 3, 12, 12)."""
        found = self.first(images)
        return self.scores(self.third(functional.relu(found + self.second(found))).mean((2, 3)))


class Language(nn.Module):
    """A transformer of two layers over characters, with a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.characters, self.places = nn.Embedding(ALPHABET, 32), nn.Embedding(LENGTH, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.scores = nn.Linear(32, ALPHABET)
        self.causal = True

    def forward(self, codes: Tensor) -> Tensor:
        """Return scores (batch, alphabet, length) of the next characters."""
        length = codes.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length) if self.causal else None
        known = self.characters(codes) + self.places(torch.arange(length))
        return self.scores(self.layers(known, mask=mask, is_causal=self.causal)).transpose(1, 2)


class Recurrent(nn.Module):
    """A GRU over sequences; its last state is scored."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.recurrent = nn.GRU(16, 32, batch_first=True)
        self.scores = nn.Linear(32, CLASSES)

    def forward(self, sequences: Tensor) -> Tensor:
        """Return scores (batch, 4) of sequences (batch, length, 8)."""
        _, last = self.recurrent(functional.gelu(self.first(sequences)))
        return self.scores(last[0])


class Drawing(nn.Module):
    """A perceptron with dropout as a function, which the check cannot switch off."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 64), nn.Linear(64, 64)
        self.scores = nn.Linear(64, CLASSES)
        self.rate = 0.3

    def forward(self, rows: Tensor) -> Tensor:
        """Return scores (batch, 4) of rows (batch, 16)."""
        hidden = functional.dropout(functional.relu(self.first(rows)), self.rate)
        return self.scores(functional.dropout(functional.relu(self.second(hidden)), self.rate))


def _perceptron() -> nn.Module:
    return nn.Sequential(
        nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, CLASSES)
    )


def _deep() -> nn.Module:
    """A narrow network of 24 layers with BatchNorm, which amplifies rounding."""
    layer = [[nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU()] for _ in range(24)]
    return nn.Sequential(*(part for parts in layer for part in parts), nn.Linear(16, CLASSES))


def _rows() -> Dataset[Any]:
    rows, labels = _labelled(SAMPLES, 16)
    return TensorDataset(rows, labels)


def _images() -> Dataset[Any]:
    images, labels = _labelled(SAMPLES, 3 * 12 * 12)
    return TensorDataset(images.view(-1, 3, 12, 12), labels)


def _sequences() -> Dataset[Any]:
    rows, labels = _labelled(SAMPLES, LENGTH * 8)
    return TensorDataset(rows.view(-1, LENGTH, 8), labels)


def _text() -> Dataset[Any]:
    generator = torch.Generator().manual_seed(0)
    steps = torch.randint(1, 4, (SAMPLES, LENGTH + 1), generator=generator)
    return TensorDataset(steps.cumsum(1) % ALPHABET)


def _labelled(count: int, width: int) -> tuple[Tensor, Tensor]:
    """Return noise around a centre for each class, and the classes."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    centres = torch.randn(CLASSES, width, generator=generator)
    return centres[labels] + torch.randn(count, width, generator=generator), labels


def _class_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    samples, labels = batch
    return functional.cross_entropy(model(samples), labels)


def _text_loss(model: nn.Module, batch: tuple[Tensor]) -> Tensor:
    (codes,) = batch
    return functional.cross_entropy(model(codes[:, :-1]), codes[:, 1:])


OPTIMIZERS: Mapping[str, Callable[..., Optimizer]] = {
    "SGD": lambda parameters, **options: SGD(parameters, lr=0.05, momentum=0.9, **options),
    "Adam": lambda parameters, **options: Adam(parameters, lr=1e-3, **options),
    "AdamW": lambda parameters, **options: AdamW(parameters, lr=1e-3, weight_decay=0.1, **options),
}


@dataclass(frozen=True)
class Model:
    """A model with its data and loss."""

    build: Callable[[], nn.Module]
    dataset: Callable[[], Dataset[Any]]
    loss: Callable[[nn.Module, Any], Tensor]

    def workload(self, optimizer: str) -> Workload:
        """Return the workload of the model with an optimizer of `OPTIMIZERS`."""
        build, path = OPTIMIZERS[optimizer], Path("model.py")
        return Workload(path, self.build, self.dataset, self.loss, build, None, None, {})


MODELS: Mapping[str, Model] = {
    "perceptron": Model(_perceptron, _rows, _class_loss),
    "perceptron with dropout": Model(Drawing, _rows, _class_loss),
    "24 layers with BatchNorm": Model(_deep, _rows, _class_loss),
    "convolutions with BatchNorm": Model(Conv, _images, _class_loss),
    "GRU": Model(Recurrent, _sequences, _class_loss),
    "transformer": Model(Language, _text, _text_loss),
}
