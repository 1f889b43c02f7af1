"""The memory of an answer: its peak against the limit, and its growth from block to block.

Growth is a leak, or a cache that fills. A process is timed for a second or two, in which what
starts and warms up grows, too. So growth counts only if it is steady within a process, and found in
nearly all processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import accumulate, combinations
from statistics import median

from autotune.configuration.evidence import (
    DeviceMemoryEvidence,
    MemoryEvidence,
    MemoryGrowth,
)
from autotune.context.search_context import SearchContext
from autotune.values.measurement import Measurement
from autotune.values.text import readable

_HOUR = 3600
# Growth that takes longer than this to reach the limit is not told, unless the run is known to.
_LONGEST_SECONDS = 72 * _HOUR
_FEWEST_BLOCKS, _FEWEST_RUNS = 6, 3
# Bytes; pages that workers touch for the first time are fewer.
_LEAST_GROWTH = 128 << 10
# Share of the processes in which memory has to grow.
_MOST_RUNS = 0.75
# Share of the pairs of blocks of which the later one has to hold more.
_MOST_PAIRS = 0.95
# Growth that is over in the second half of the blocks was the end of a warm-up.
_GOES_ON = 0.7

Point = tuple[float, float]


def memory_evidence(
    context: SearchContext, baseline_runs: Sequence[Measurement], runs: Sequence[Measurement]
) -> MemoryEvidence:
    """Return the memory of an answer that `runs` confirmed beside those of the baseline."""
    peak, limit = max(run.peak_memory_bytes for run in runs), context.memory_limit_bytes
    found = [run.longest_among for run in runs if run.longest_among is not None]
    among = min(found, key=lambda lengths: lengths.looked_at, default=None)
    slowest = max(run.seconds_per_sample for run in (*baseline_runs, *runs))
    seconds = max(_LONGEST_SECONDS, (context.objective.run_samples or 0) * slowest)
    least = (limit - peak) / seconds
    own, best = (_growth_per_hour(each, least) for each in (baseline_runs, runs))
    return MemoryEvidence(
        peak_bytes=peak,
        limit_bytes=limit,
        margin=round(peak / limit - 1, 4),
        device=_device_memory(runs),
        longest_of=None if among is None else among.looked_at,
        dataset_samples=None if among is None else among.dataset,
        growth_per_hour=MemoryGrowth(baseline=own, best=best) if own or best else None,
    )


def _growth_per_hour(runs: Sequence[Measurement], least: float) -> float | None:
    """Return the bytes an hour by which memory grows; None below `least` bytes per second."""
    rate = bytes_per_second(runs)
    return None if rate is None or rate < least else readable(_HOUR * rate)


def _device_memory(runs: Sequence[Measurement]) -> DeviceMemoryEvidence | None:
    """Return the accelerator's memory in the process that left least of it free."""
    found = [run.device_memory for run in runs if run.device_memory is not None]
    if not found:
        return None
    return DeviceMemoryEvidence(**asdict(min(found, key=lambda memory: memory.free)))


def bytes_per_second(runs: Sequence[Measurement]) -> float | None:
    """Return how fast the memory in use grows: the median of the processes.

    None if it does not grow steadily, or if too little is known.
    """
    slopes = [slope for run in runs if (slope := _slope(run)) is not None]
    growing = sum(slope > 0 for slope in slopes)
    if len(slopes) < _FEWEST_RUNS or growing < _MOST_RUNS * len(slopes):
        return None
    return median(slopes)


def _slope(run: Measurement) -> float | None:
    """Return the bytes per second by which one process grows; 0 if unsteadily, None if unknown."""
    used = [b.noise.memory_bytes for b in run.blocks if b.noise.memory_bytes is not None]
    if not _FEWEST_BLOCKS <= len(used) == len(run.blocks):
        return None
    points = list(zip(accumulate(block.seconds for block in run.blocks), used, strict=True))
    if used[-1] - used[0] < _LEAST_GROWTH:
        return 0.0
    rises = [later > earlier for earlier, later in combinations(used, 2)]
    if sum(rises) < _MOST_PAIRS * len(rises):
        return 0.0
    middle = len(points) // 2
    first, second = _theil_sen(points[: middle + 1]), _theil_sen(points[middle:])
    return _theil_sen(points) if second >= _GOES_ON * first else 0.0


def _theil_sen(points: Sequence[Point]) -> float:
    """Return the median slope of all pairs of points, which an outlier does not change."""
    return median((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2))
