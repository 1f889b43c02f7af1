"""Changes of a dataset are seen; what is no change is not taken for one."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset

from autotune.scripting.dataset_changes import snapshot


class Data(Dataset[Any]):
    """With attributes of every kind, and a way back to itself."""

    def __init__(self) -> None:
        self.epoch = 0
        self.names = [str(n) for n in range(10_000)]
        self.order = np.arange(10_000)
        self.options = {"crop": [1, 2]}
        self.weights = torch.ones(4)
        self.shared = torch.ones(4).share_memory_()
        self.itself = self

    def collate(self, samples: list[Any]) -> list[Any]:
        return samples


def around(data: Data) -> Dataset[Any]:
    return ConcatDataset([Subset(data, range(3))])


CHANGES: dict[str, Callable[[Data], object]] = {
    "a number": lambda data: setattr(data, "epoch", 1),
    "shuffled names": lambda data: random.Random(0).shuffle(data.names),
    "a shuffled array": lambda data: np.random.default_rng(0).shuffle(data.order),
    "a deep list": lambda data: data.options["crop"].append(3),
    "a tensor": lambda data: data.weights.add_(1),
    "another tensor": lambda data: setattr(data, "weights", torch.ones(4)),
    "a new attribute": lambda data: setattr(data, "stage", None),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_seen_however_deep(what: str) -> None:
    data = Data()
    kept, whole, bound = data.weights, around(data), data.collate
    before, by_method = snapshot(whole), snapshot(bound)
    assert snapshot(whole) == before
    CHANGES[what](data)
    assert snapshot(whole) != before
    assert snapshot(bound) != by_method
    assert kept is not None, "alive, so that nothing new can lie in its place"


def test_a_change_that_workers_see_by_themselves_is_no_change() -> None:
    data = Data()
    before = snapshot(data)
    data.shared.add_(1)
    assert snapshot(data) == before
