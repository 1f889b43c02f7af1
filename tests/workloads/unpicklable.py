"""Workers are spawned, so the dataset has to be pickled, which its lambda does not allow."""

import multiprocessing

import plain
from plain import build_model, compute_loss  # noqa: F401

BASELINE = {"batch_size": 8, "num_workers": 1, "num_threads": 1}
multiprocessing.set_start_method("spawn", force=True)


def build_dataset():
    dataset = plain.build_dataset()
    dataset.transform = lambda points: points
    return dataset
