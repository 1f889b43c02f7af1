"""Trains as plain.py does, slower by what an argument and a variable of the environment say."""

import os
import time

import plain
from plain import build_optimizer, evaluate  # noqa: F401
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset

BASELINE = plain.BASELINE


def build_model(careful: bool = True) -> nn.Module:
    model = plain.build_model()
    model.careful = careful
    return model


def build_dataset(samples: int = 256) -> Dataset:
    return Subset(plain.build_dataset(), range(samples))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    time.sleep(0.005 * model.careful + 0.005 * (os.environ.get("OWN_PAUSE") != "0"))
    return plain.compute_loss(model, batch)
