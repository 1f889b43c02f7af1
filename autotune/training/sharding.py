"""Observe whether DataLoader workers share the samples of a stream or each give all of them.

PyTorch gives every worker the whole IterableDataset. Only the dataset can leave out what other
workers give, so that is observed: the beginning of an epoch is read in this process, and then by
two workers. All draw the same random numbers, so that augmented copies of a sample are equal.
"""

from __future__ import annotations

import hashlib
import math
import os
import random
import time
from collections import Counter
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from autotune.knobs.torch_private import map_leaves, stop_workers

STREAM = "the dataset is an IterableDataset, and each worker would load all of it"
_UNTOLD = (
    "the dataset is an IterableDataset, and it is unknown whether workers would share its samples"
)
_WORKERS = 2
# Samples that each process reads, and seconds; those of workers begin with their first sample.
_SAMPLES = 1000
_SECONDS = 0.5
# Seconds until the first sample beyond which no workers are started; seconds they may start in.
_SLOW_SECONDS = 5.0
_START_SECONDS = 5.0
# Share of samples that may be given twice or left out, as where shards are padded to one length.
_TOLERANCE = 0.1
# Samples in common from which the beginnings of two workers are not split; see `finding`.
_FEWEST_COMMON = 3
_DIGEST_BYTES = 16


@dataclass
class Reading:
    """The beginning of an epoch, as digests of its samples."""

    by_worker: tuple[list[bytes], ...]
    """Digests in the order in which each worker gave them; one list without workers."""
    is_whole: bool = False
    """True if the epoch ended."""
    first_seconds: float = 0.0
    """Seconds until the first sample."""

    @property
    def samples(self) -> int:
        """Return the number of samples that were read."""
        return sum(map(len, self.by_worker))


def workers_obstacle(stream: IterableDataset[Any]) -> str:
    """Return why DataLoader workers must not load `stream`; "" if they share its samples.

    It takes a second, and as long as a sample that was begun then. To these come the start of
    two workers and the wait for their first sample. If that takes more than five seconds, and twice
    what it took without workers, or if reading fails, the stream is refused.
    """
    try:
        alone = _read(stream, 0)
        if alone.first_seconds > _SLOW_SECONDS:
            return f"{_UNTOLD}: its first sample takes {alone.first_seconds:.1f} s"
        patience = math.ceil(_START_SECONDS + 2 * alone.first_seconds)
        return finding(alone, _read(stream, _WORKERS, patience))
    except Exception as error:  # whatever the user's code raises
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return f"{_UNTOLD}: reading it failed ({lines[-1]})"


def finding(alone: Reading, shared: Reading) -> str:
    """Return why workers must not be used, given readings without and with two; "" if they may.

    Shards are padded at their ends, so workers that share a stream have no sample of its beginning
    in common, unless it holds equal ones. These show within the readings too: for every pair of
    samples from both workers there is one and more from the same reading. If m pairs are equal by
    chance, three or more are common and no reading repeats one with a probability of at most
    exp(-m) (1 - exp(-m) (1 + m + m^2 / 2)), below 5 % for every m. Two would reach 10 %.
    """
    if counted := _count_obstacle(alone, shared):
        return counted
    is_counted = alone.is_whole and shared.is_whole
    (own,), (first, second) = alone.by_worker, shared.by_worker
    pairs = min(len(first), len(second))
    same = (Counter(first[:pairs]) & Counter(second[:pairs])).total()
    # A stream that repeats samples by itself may give equal ones to both workers.
    is_padding = same <= _TOLERANCE * pairs or (is_counted and _repeats(own))
    is_chance = same < _FEWEST_COMMON or is_counted or any(map(_repeats, (own, first, second)))
    if not (is_padding and is_chance):
        return f"{STREAM}: {same} of the first {pairs} samples of {_WORKERS} workers are the same"
    if is_counted or {*first, *second} & set(own):
        return ""
    return f"{_UNTOLD}: they differ each time, and an epoch is too long to be counted"


def _repeats(digests: list[bytes]) -> bool:
    return len(set(digests)) < len(digests)


def _count_obstacle(alone: Reading, shared: Reading) -> str:
    """Return why workers must not be used by the length of an epoch; "" if it shows nothing."""
    if not alone.is_whole:
        return ""
    usual, found = alone.samples, shared.samples
    is_more = found > (1 + _TOLERANCE) * usual + 1
    is_less = shared.is_whole and found < (1 - _TOLERANCE) * usual - 1
    if not (is_more or is_less):
        return ""
    head = STREAM if is_more else "the dataset is an IterableDataset that loses samples"
    most = "" if shared.is_whole else "at least "
    return f"{head}: an epoch has {most}{found} samples with {_WORKERS} workers, {usual} without"


def _read(stream: IterableDataset[Any], workers: int, timeout_seconds: float = 0.0) -> Reading:
    """Read the beginning of an epoch with so many workers.

    Raises:
        RuntimeError: the workers give no sample within the timeout.
        Exception: whatever the stream raises.
    """
    loader = DataLoader(
        stream,
        batch_size=1,
        collate_fn=_digest,
        num_workers=workers,
        timeout=timeout_seconds,
        worker_init_fn=_seed,
        generator=torch.Generator(),  # else the loader draws a number after the seeding
    )
    reading = Reading(tuple([] for _ in range(workers or 1)))
    start = time.perf_counter()
    _seed()
    batches = iter(loader)
    try:
        for worker, digest in batches:
            reading.by_worker[worker].append(digest)
            now = time.perf_counter()
            if reading.samples == 1:
                reading.first_seconds = now - start
            # Workers start first. They take turns, so two samples show both, if both have any.
            is_late = now - start > _SECONDS + (reading.first_seconds if workers else 0.0)
            if reading.samples >= len(reading.by_worker) * (1 if is_late else _SAMPLES):
                return reading
        reading.is_whole = True
    finally:
        stop_workers(batches)
    return reading


def _seed(_worker: int = 0) -> None:
    """Seed the generators of this process, as those of each worker."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def _digest(samples: list[Any]) -> tuple[int, bytes]:
    """Return the number of the worker that runs this, and the digest of a batch of one sample."""
    worker = get_worker_info()
    content = repr(map_leaves(_content, samples)).encode()
    return 0 if worker is None else worker.id, _hashed(content)


def _content(leaf: Any) -> object:
    """Return a value that is equal for equal leaves of a sample, in another process too.

    What cannot be compared is unlike anything else.
    """
    match leaf:
        case None | bool() | int() | float() | complex() | str() | bytes():
            return leaf
        case Tensor() if leaf.layout is torch.strided:
            flat = leaf.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            return _hashed(flat.numpy().tobytes())
        case np.ndarray() if leaf.dtype.hasobject:
            return map_leaves(_content, leaf.tolist())
        case _ if is_dataclass(leaf):
            return [map_leaves(_content, getattr(leaf, each.name)) for each in fields(leaf)]
        case _ if hasattr(leaf, "tobytes"):  # arrays and images
            return _hashed(leaf.tobytes())
    return os.urandom(_DIGEST_BYTES)


def _hashed(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
