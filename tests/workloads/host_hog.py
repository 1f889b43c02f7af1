"""Keeps 16 MiB of memory for each sample of a batch above 32."""

import time

import plain
from plain import BASELINE, build_dataset, build_model, evaluate  # noqa: F401

_kept: list[bytes] = []


def compute_loss(model, batch):
    samples = len(batch[0])
    if samples > 32 and not _kept:
        _kept.append(b"x" * (samples << 24))
        time.sleep(1.5)  # long enough to be seen
    return plain.compute_loss(model, batch)
