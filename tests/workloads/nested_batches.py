"""Batches are dicts with a namedtuple, a list and text in them."""

from typing import NamedTuple

import plain
from plain import BASELINE, build_model  # noqa: F401
from torch import Tensor
from torch.nn import functional
from torch.utils.data import Dataset

POINTS = plain.build_dataset()


class Pair(NamedTuple):
    points: Tensor
    labels: Tensor


class Nested(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        points, label = POINTS[index]
        return {"pair": Pair(points, label), "weights": [1.0, 2.0], "name": str(index)}


def build_dataset():
    return Nested()


def compute_loss(model, batch):
    assert isinstance(batch["pair"], Pair)
    assert isinstance(batch["name"][0], str)
    points, labels = batch["pair"]
    return functional.cross_entropy(model(points), labels) * batch["weights"][0].mean().float()
