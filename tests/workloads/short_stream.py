"""A stream of five samples, fewer than one batch of the baseline."""

import plain
from plain import BASELINE, build_model, compute_loss  # noqa: F401
from torch.utils.data import IterableDataset


class Stream(IterableDataset):
    def __iter__(self):
        dataset = plain.build_dataset()
        return (dataset[index] for index in range(5))


def build_dataset():
    return Stream()
