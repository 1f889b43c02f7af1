"""A stream of five samples, fewer than one batch of the baseline."""

from collections.abc import Iterator

import plain
from plain import BASELINE, build_model, compute_loss  # noqa: F401
from torch import Tensor
from torch.utils.data import IterableDataset


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        dataset = plain.build_dataset()
        return (dataset[index] for index in range(5))


def build_dataset() -> IterableDataset:
    return Stream()
