"""The dataset is a stream without a length, and there is no evaluate."""

import plain
from plain import BASELINE, build_model, compute_loss  # noqa: F401
from torch.utils.data import IterableDataset


class Stream(IterableDataset):
    def __iter__(self):
        dataset = plain.build_dataset()
        return (dataset[index % 256] for index in range(1024))


def build_dataset():
    return Stream()
