"""The memory limit of a search: what surely would exceed it, and is not run.

Memory grows linearly with the batch size for configurations that agree in every other setting that
matters to memory. At least two measured batch sizes give the line, which is not extrapolated far.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from statistics import linear_regression

from autotune.configuration.training_config import BATCH_KNOBS, TrainingConfig
from autotune.knobs import ALL_KNOBS
from autotune.searching.run.search_run import SearchRun
from autotune.study.finished import FinishedTrial
from autotune.values.outcome import OutOfMemory
from autotune.values.text import size

# Allocators round up and algorithms switch: a prediction must exceed the limit by this factor.
_SAFETY = 1.05
# Largest factor over the largest measured batch for which a prediction is made.
_REACH = 4
# Exact knobs that memory depends on all the same: batches lie in the loader's queue, an
# allocator keeps what is freed, and garbage waits for its collector.
_MEMORY = (
    "num_workers",
    "prefetch_factor",
    "pin_memory",
    "device_prefetch",
    "cpu_allocator",
    "gc",
)
# Allocation is in pages, and a batch holds more than its samples.
_SHARED_SAFETY = 1.2

Point = tuple[int, int]
"""Batch size and peak memory in bytes."""


def foresee(search: SearchRun, config: TrainingConfig) -> OutOfMemory | None:
    """Return the OOM that running `config` would surely end in; None if it must be tried."""
    limit = search.context.memory_limit_bytes
    batch = int(config["batch_size"] or 1)
    points = _points(search.study.finished(), config)
    expected = expected_bytes(points, batch)
    if expected is not None and expected > _SAFETY * limit:
        return OutOfMemory(
            "device" if search.context.machine.has_accelerator else "host",
            f"not run: about {size(expected)} expected, from batches of "
            f"{' and '.join(str(batches) for batches, _ in points)}; the limit is {size(limit)}",
            expected,
            foreseen=True,
        )
    return _shared_memory(search, config)


def expected_bytes(points: Sequence[Point], batch: int) -> int | None:
    """Predict the peak memory of a batch size by linear regression through `points`.

    Returns:
        A low estimate in bytes: the line's value, less twice its largest residual. None with fewer
        than two batch sizes, up to the largest of them, and beyond four times that.
    """
    sizes = [batches for batches, _ in points]
    if len(set(sizes)) < 2 or not max(sizes) < batch <= _REACH * max(sizes):  # noqa: PLR2004
        return None
    slope, intercept = linear_regression(sizes, [peak for _, peak in points])
    misses = [abs(intercept + slope * batches - peak) for batches, peak in points]
    return round(intercept + slope * batch - 2 * max(misses))


def _points(finished: Sequence[FinishedTrial], config: TrainingConfig) -> list[Point]:
    """Return batch sizes and peaks of the measured trials in the memory class of `config`."""
    return sorted(
        (int(trial.config["batch_size"] or 1), peak)
        for trial in finished
        if (peak := trial.details.peak_memory_bytes) is not None
        and _class(trial.config) == _class(config)
    )


def _class(config: TrainingConfig) -> tuple[object, ...]:
    """Return the values of all settings that memory depends on besides the batch size.

    A second batch of a step is computed while the gradients of the first lie in memory. The user's
    own knobs count whatever their effect: recomputing activations is exact.
    """
    names = [k.name for k in ALL_KNOBS if k.effect != "exact" or k.name in _MEMORY]
    others = tuple(config[name] for name in names if name not in BATCH_KNOBS)
    return (*others, config["accumulation_steps"] != 1, config.own)


def _shared_memory(search: SearchRun, config: TrainingConfig) -> OutOfMemory | None:
    """Predict an OOM of /dev/shm, through which workers pass batches; containers keep it small."""
    queued = int(config["num_workers"] or 0) * int(config["prefetch_factor"] or 0)
    needed = queued * int(config["batch_size"] or 1) * search.context.facts.sample_bytes
    free = free_shared_bytes()
    if free is None or _SHARED_SAFETY * needed <= free:
        return None
    return OutOfMemory(
        "shared",
        f"not run: {queued} batches in the loader's queue take {size(needed)} of /dev/shm, "
        f"where {size(free)} are free",
        needed,
        foreseen=True,
    )


def free_shared_bytes() -> int | None:
    """Return the free bytes of /dev/shm; None where it does not exist."""
    try:
        return shutil.disk_usage(Path("/", "dev", "shm")).free
    except OSError:
        return None
