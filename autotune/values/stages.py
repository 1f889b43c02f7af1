"""Outcomes that are about the stages of training: loading, copying, computing, updating."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from autotune.values.measurement import Measurement
from autotune.values.statistics import Interval, log_median, median_interval

# A rank that takes this many times as long as the others is beyond what timings of equals differ.
_SLOWER = 1.03
# A smaller difference of waits, as a share of the timed seconds, is taken for noise.
_LONGER = 0.03


@dataclass(frozen=True, slots=True)
class SlowRank:
    """A process that takes longer than the others with which it trains."""

    rank: int
    ratio: float
    """Its seconds over the median of the others'."""
    interval: Interval


def slow_rank(seconds: Sequence[Sequence[float]]) -> SlowRank | None:
    """Return the rank that is slower than the others beyond the noise, or None.

    Args:
        seconds: for each block, the seconds of each rank; they are compared within a block.
    """
    if not seconds or len(seconds[0]) < 2:  # noqa: PLR2004 (one process has no others)
        return None
    found = {rank: _ratios(seconds, rank) for rank in range(len(seconds[0]))}
    rank = max(found, key=lambda one: log_median(found[one]))
    interval = median_interval(found[rank])
    return SlowRank(rank, log_median(found[rank]), interval) if interval[0] > _SLOWER else None


def _ratios(seconds: Sequence[Sequence[float]], rank: int) -> list[float]:
    """Return, for each block, the seconds of a rank over the median of the others'."""
    return [one[rank] / median((*one[:rank], *one[rank + 1 :])) for one in seconds]


def wait_shares(run: Measurement) -> tuple[float, ...]:
    """Return each rank's share of the timed seconds in which it waited for data, 0 to 1.

    Empty for one process.
    """
    timed = sum(block.seconds for block in run.blocks)
    return tuple(min(1.0, rank.wait_seconds / timed) for rank in run.ranks)


def waiting_text(run: Measurement) -> str:
    """Return a clause on the rank that waits for data for longer than the others; "" without one.

    The difference has to pass the width of the rate's 95 % interval.
    """
    shares = wait_shares(run)
    if len(shares) < 2:  # noqa: PLR2004 (one process has no others)
        return ""
    rank = max(range(len(shares)), key=lambda one: shares[one])
    others = median((*shares[:rank], *shares[rank + 1 :]))
    low, high = run.samples_per_second_interval
    if shares[rank] - others <= max(_LONGER, (high - low) / run.samples_per_second):
        return ""
    return (
        f"rank {rank} waits for data {100 * shares[rank]:.0f} % of the time, the others "
        f"{100 * others:.0f} %"
    )


@dataclass(frozen=True, slots=True)
class CountedFlops:
    """Arithmetic of a training step."""

    flops_per_sample: float | None = None
    """Floating-point operations of a training step for each sample; None if not counted."""
    number_format: str | None = None
    """Format of the step's products, see `autotune.limits.flops`."""
    uncounted: str = ""
    """Reason why the FLOPs are not counted."""
    matmul_flops_per_second: float | None = None
    """Rate of matrix products in that format; None if not measured."""
    kind: Literal["counted_flops"] = "counted_flops"


@dataclass(frozen=True, slots=True)
class Loading:
    """Seconds that loading a batch takes with `num_workers` workers, without training."""

    num_workers: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """Seconds per batch that each stage of training takes alone."""

    batch_size: int
    compute_seconds: float
    """Seconds of a whole step on a batch that is on the device already."""
    double_compute_seconds: float | None
    """Seconds of a step with twice the batch size; None if the dataset has no such batch."""
    transfer_seconds: float
    """Seconds of copying a batch to the device; 0 on a CPU."""
    loading: tuple[Loading, ...]
    """Loading with each number of workers, 0 first; empty if no DataLoader feeds training."""
    optimizer_seconds: float
    """Part of `compute_seconds` in which the optimizer updates the parameters."""
    launch_seconds: float | None = None
    """Seconds until a step has queued its kernels on the accelerator; None on a CPU."""
    busy_seconds: float | None = None
    """Seconds of a step in which kernels run on the accelerator; None where no profiler tells."""
    bfloat16_compute_seconds: float | None = None
    """Seconds of a step under bfloat16 autocast; None if not asked for, or if it fails."""
    processes: int = 1
    """Processes that train together, each with such batches at the same time."""
    exchange_seconds: float | None = None
    """Part of `compute_seconds` that exchanging gradients adds; None for one process, and if the
    model is sharded."""
    rank_seconds: tuple[tuple[float, ...], ...] = ()
    """For each block of computing without an exchange, the seconds of each process."""
    kind: Literal["diagnosed"] = "diagnosed"

    @property
    def samples(self) -> int:
        """Samples of a batch, of all processes together."""
        return self.processes * self.batch_size


@dataclass(frozen=True, slots=True)
class Operator:
    """One kind of operator in a training step."""

    name: str
    calls: int
    """Number of calls in all profiled steps."""
    seconds: float
    """Seconds per step, without the operators that it calls."""
    share: float
    """Share of the time of all operators, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Profiled:
    """Operators of a training step, the most expensive first."""

    operators: tuple[Operator, ...]
    kind: Literal["profiled"] = "profiled"
