"""One sample cannot be read; sample after sample comes from a worker."""

import plain
from plain import BASELINE, build_model, compute_loss  # noqa: F401
from torch.utils.data import Dataset


class Damaged(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 5:
            raise ValueError("sample 5 is damaged")
        return plain.build_dataset()[index]


def build_dataset():
    return Damaged()
