"""A stream of which each process has a part of another length."""

import os

import plain
from plain import build_model, build_optimizer, compute_loss, evaluate
from torch.utils.data import IterableDataset

__all__ = ["build_dataset", "build_model", "build_optimizer", "compute_loss", "evaluate"]
BASELINE = plain.BASELINE


class Stream(IterableDataset):
    def __iter__(self):
        points = plain._points(seed=0, count=256)
        rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        mine = range(rank, 256, size)
        # Rank 1 has half as many samples as rank 0.
        yield from (points[i] for i in mine[: len(mine) // (1 + rank)])


def build_dataset():
    return Stream()
