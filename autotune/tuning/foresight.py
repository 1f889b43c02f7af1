"""Configurations that will not fit, told from what was measured before: they are not run.

Memory grows with the batch size along a straight line, for configurations that agree in everything
else that matters to memory. Two points give the line; it is not trusted far beyond them.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from statistics import linear_regression

from autotune.config import TrainingConfig
from autotune.knobs import ALL_KNOBS
from autotune.outcome import OutOfMemory
from autotune.tuning.session import Session
from autotune.tuning.storing.study import FinishedTrial

# Allocators round up and algorithms switch: a prediction must exceed the limit by so much.
_SAFETY = 1.05
# Never predict for batches this many times larger than the largest one measured.
_REACH = 4
# Exact knobs that take memory all the same: batches lie in the loader's queue.
_LOADER = ("num_workers", "prefetch_factor", "pin_memory")
# Allocation is in pages, and a batch holds more than its samples.
_SHARED_SAFETY = 1.2

Point = tuple[int, int]
"""Batch size, and the peak in bytes."""


def foresee(session: Session, config: TrainingConfig) -> OutOfMemory | None:
    """The outcome that running `config` would surely have, or None where it must be tried."""
    limit = session.scene.memory_limit_bytes
    batch = int(config["batch_size"] or 1)
    points = _points(session.study.finished(), config)
    expected = expected_bytes(points, batch)
    if expected is not None and expected > _SAFETY * limit:
        return OutOfMemory(
            "device" if session.scene.machine.has_accelerator else "host",
            f"not run: about {expected} bytes expected from batches of "
            f"{' and '.join(str(size) for size, _ in points)}, with a limit of {limit}",
            expected,
            foreseen=True,
        )
    return _shared_memory(session, config)


def expected_bytes(points: Sequence[Point], batch: int) -> int | None:
    """What a batch size will take by the line through `points`; None where nobody can tell."""
    sizes = [size for size, _ in points]
    if len(set(sizes)) < 2 or not max(sizes) < batch <= _REACH * max(sizes):  # noqa: PLR2004
        return None
    slope, intercept = linear_regression(sizes, [peak for _, peak in points])
    misses = [abs(intercept + slope * size - peak) for size, peak in points]
    return round(intercept + slope * batch - 2 * max(misses))


def _points(finished: Sequence[FinishedTrial], config: TrainingConfig) -> list[Point]:
    """Measured batch sizes with their peaks, of trials that share the class of `config`."""
    return sorted(
        (int(trial.config["batch_size"] or 1), trial.details["peak_memory_bytes"])
        for trial in finished
        if "peak_memory_bytes" in trial.details and _class(trial.config) == _class(config)
    )


def _class(config: TrainingConfig) -> tuple[object, ...]:
    """What memory depends on besides the batch size."""
    names = [k.name for k in ALL_KNOBS if k.effect != "exact" or k.name in _LOADER]
    return tuple(config[name] for name in names if name != "batch_size")


def _shared_memory(session: Session, config: TrainingConfig) -> OutOfMemory | None:
    """Workers pass batches through /dev/shm, which containers often keep small."""
    queued = int(config["num_workers"] or 0) * int(config["prefetch_factor"] or 0)
    needed = queued * int(config["batch_size"] or 1) * session.scene.facts.sample_bytes
    free = free_shared_bytes()
    if free is None or _SHARED_SAFETY * needed <= free:
        return None
    return OutOfMemory(
        "shared",
        f"not run: {queued} batches in the loader's queue take {needed} bytes of /dev/shm, "
        f"where {free} are free",
        needed,
        foreseen=True,
    )


def free_shared_bytes() -> int | None:
    """Free space of /dev/shm; None where there is none."""
    try:
        return shutil.disk_usage(Path("/", "dev", "shm")).free
    except OSError:
        return None
