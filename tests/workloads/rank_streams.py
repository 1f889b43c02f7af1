"""A stream that each process reads in full, or of which each has a part of another length."""

import os

import plain
from plain import build_model, build_optimizer, compute_loss, evaluate
from torch.utils.data import IterableDataset

__all__ = ["build_dataset", "build_model", "build_optimizer", "compute_loss", "evaluate"]
BASELINE = plain.BASELINE
SPLITS = False


class Stream(IterableDataset):
    def __iter__(self):
        points = plain._points(seed=0, count=256)
        rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        mine = range(rank, 256, size) if SPLITS else range(256)
        # Rank 1 has half as many samples as rank 0.
        yield from (points[i] for i in mine[: len(mine) // (1 + rank * SPLITS)])


def build_dataset():
    return Stream()
