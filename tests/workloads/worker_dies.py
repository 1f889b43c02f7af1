"""A DataLoader worker ends itself as soon as it is asked for a sample."""

import os

import plain
from plain import BASELINE, build_model, compute_loss  # noqa: F401
from torch.utils.data import Dataset, get_worker_info


class Deadly(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        if get_worker_info() is not None:
            os._exit(9)
        return plain.build_dataset()[index]


def build_dataset():
    return Deadly()
