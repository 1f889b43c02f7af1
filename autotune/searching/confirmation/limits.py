"""The limits of a result: each stage alone at its settings, and its use of the device's arithmetic.

A child times training and each stage alone in turns. A stage's rate is its ratio to training there,
applied to the throughput that best.yaml states. So the ratio is of one moment, and the machine's
drift between the rounds and that process does not enter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from autotune.accuracy.accuracy_verdict import AccuracyProber
from autotune.configuration.evidence_parts import StageLimits, Straggler
from autotune.configuration.job import FindLimits, MeasurePlan
from autotune.configuration.training_config import TrainingConfig
from autotune.storage.notes import matmul_rate_key
from autotune.values.measurement import Block, Measurement
from autotune.values.stages import SpeedLimits, StageRound, slow_rank
from autotune.values.statistics import Interval, log_median, median_interval

_ROUNDS = 6
"""Rounds of blocks: the fewest that have a 95 % interval."""
_PLAN = MeasurePlan(block_seconds=0.15, looks=(_ROUNDS,), max_seconds=6.0)


def time_limits(
    prober: AccuracyProber, config: TrainingConfig, runs: Sequence[Measurement]
) -> StageLimits | None:
    """Time the limits of a configuration; None for a script, or if it fails.

    Side effect: notes the machine's rate of matrix products in the study, if it was not known.

    Args:
        prober: context, runner and study of the search.
        config: the result's settings.
        runs: the processes behind the throughput that is stated for it.
    """
    context, notes = prober.context, prober.study.notes
    if context.options.workload.script is not None:
        return None
    machine = context.machine
    start = matmul_rate_key(machine.fingerprint, "")
    known = tuple(key.removeprefix(start) for key in notes.matmul_rates if key.startswith(start))
    # Launchers of several processes leave each of them one thread.
    alone = context.processes == 1
    threads = machine.default_num_threads if alone else machine.host.usable_cores
    task = FindLimits(_PLAN, threads, known)
    folder = context.options.study.folder / "trials" / "limits"
    found = prober.runner.run(context.job(task, config), folder)
    if not isinstance(found, SpeedLimits):
        return None
    key = matmul_rate_key(machine.fingerprint, found.number_format or "")
    if found.matmul_flops_per_second is not None:
        notes.set_matmul_rate(key, found.matmul_flops_per_second)
    rate = notes.matmul_rates.get(key)
    devices = context.processes if machine.has_accelerator else 1
    return limits_of_result(found, runs, None if rate is None else devices * rate)


def limits_of_result(
    found: SpeedLimits, runs: Sequence[Measurement], matmul_flops_per_second: float | None
) -> StageLimits:
    """Return the limits of a result.

    Args:
        found: rounds of blocks under its settings, and the FLOPs of a step.
        runs: the processes behind the throughput that is stated for it.
        matmul_flops_per_second: the rate of matrix products on all devices; None if not known.
    """
    # An epoch's boundary belongs to loading, and no block contains one.
    boundary = median(run.boundary_share for run in runs)
    step = median(run.seconds_per_sample - run.boundary_share for run in runs)
    compute = _alone(found, lambda one: one.computing, lambda ratio: ratio / step)
    loader = _alone(found, lambda one: one.loading, lambda ratio: 1 / (step / ratio + boundary))
    rate = median(run.samples_per_second for run in runs)
    return StageLimits(
        compute=compute.rate,
        compute_ci95=compute.interval,
        loader=loader.rate,
        loader_ci95=loader.interval,
        flops_per_sample=found.flops_per_sample,
        number_format=found.number_format,
        matmul_flops_per_second=matmul_flops_per_second,
        mfu=_utilisation(found.flops_per_sample, rate, matmul_flops_per_second),
        straggler=_straggler(found),
    ).model_copy(update=_exchange(found))


def _exchange(found: SpeedLimits) -> dict[str, object]:
    """Return the share of a step that exchanging gradients adds, as fields; none if not timed."""
    pairs = [(one.training, one.apart) for one in _calm(found) if one.apart is not None]
    if not pairs:
        return {}
    shares = [1 - apart.seconds_per_sample / all_.seconds_per_sample for all_, apart in pairs]
    told: dict[str, object] = {"exchange_share": round(max(0.0, median(shares)), 4)}
    if len(shares) < _ROUNDS:
        return told
    low, high = (round(max(0.0, bound), 4) for bound in median_interval(shares))
    return {**told, "exchange_share_ci95": (low, high)}


def _straggler(found: SpeedLimits) -> Straggler | None:
    """Return the process that is slower than the others at a stage, if one is."""
    rounds = _calm(found)
    stages: dict[Literal["computing", "loading"], list[tuple[float, ...]]] = {
        "computing": [one.computing_by_rank for one in rounds if one.computing_by_rank],
        "loading": [one.loading_by_rank for one in rounds if one.loading_by_rank],
    }
    for stage, seconds in stages.items():
        if slow := slow_rank(seconds):
            low, high = (round(bound, 4) for bound in slow.interval)
            return Straggler(
                rank=slow.rank, stage=stage, ratio=round(slow.ratio, 4), ci95=(low, high)
            )
    return None


def _calm(found: SpeedLimits) -> Sequence[StageRound]:
    """Return the undisturbed rounds, or all if those are too few for an interval."""
    calm = [one for one in found.rounds if not one.is_disturbed]
    return calm if len(calm) >= _ROUNDS else found.rounds


@dataclass(frozen=True, slots=True)
class _Alone:
    """Samples per second of a stage alone, with its interval; None if not told."""

    rate: float | None = None
    interval: Interval | None = None


def _alone(
    found: SpeedLimits,
    stage: Callable[[StageRound], Block],
    rate_of: Callable[[float], float],
) -> _Alone:
    """Return the rate of a stage alone; none if it is not told to be faster than training.

    It is told if the whole interval of the ratio is at least 1. With too few rounds for an
    interval, the ratio is.

    Args:
        found: rounds of blocks.
        stage: function that picks the stage's block of a round.
        rate_of: function from a ratio to the rate of training, to samples per second.
    """
    rounds = _calm(found)
    ratios = [one.training.seconds_per_sample / stage(one).seconds_per_sample for one in rounds]
    ratio, (low, high) = log_median(ratios), median_interval(ratios)
    if len(ratios) < _ROUNDS:
        return _Alone(round(rate_of(ratio), 1)) if ratio > 1 else _Alone()
    if low < 1:
        return _Alone()
    return _Alone(round(rate_of(ratio), 1), (round(rate_of(low), 1), round(rate_of(high), 1)))


def _utilisation(
    flops: float | None, samples_per_second: float, matmul_flops_per_second: float | None
) -> float | None:
    """Return the model FLOPs utilisation; None if unknown, or if a rate above 1 contradicts it."""
    if flops is None or matmul_flops_per_second is None:
        return None
    share = flops * samples_per_second / matmul_flops_per_second
    return float(f"{share:.3g}") if share <= 1 else None
