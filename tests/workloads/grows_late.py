"""Memory grows long after the warm-up: by 600 MiB in batches of 9, and in each worker."""

import itertools
import time

import plain
from plain import build_model, build_optimizer, evaluate  # noqa: F401
from torch.utils.data import Dataset, get_worker_info

BASELINE = {"batch_size": 8, "num_threads": 1}

_kept: list[bytes] = []
_calls = itertools.count(1)


class Points(Dataset):
    def __init__(self):
        self._points = plain.build_dataset()
        self._calls = 0

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        self._calls += 1
        if get_worker_info() is not None and self._calls == 300:
            _kept.append(b"x" * (600 << 20))
        return self._points[index % 256]


def build_dataset():
    return Points()


def compute_loss(model, batch):
    time.sleep(0.01)
    if len(batch[0]) == 9 and next(_calls) == 60:
        _kept.append(b"x" * (600 << 20))
    return plain.compute_loss(model, batch)
