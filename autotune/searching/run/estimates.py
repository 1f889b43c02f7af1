"""Estimates of the remaining seconds of a search before its first trial.

They rest on the seconds that a process takes to start and on the plan of its timing. After the
first process of the baseline, they rest on the seconds that such processes took.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from autotune.accuracy.probes import probe_seconds
from autotune.accuracy.seeds import SEEDS
from autotune.comparison.sequential_test import LOOKS
from autotune.configuration.job import MeasurePlan
from autotune.searching.run.confirmation_time import (
    LIMITS_SECONDS,
    in_a_round,
    round_host_seconds,
)
from autotune.searching.run.events import CostsMeasured
from autotune.searching.run.search_run import SearchRun, process_seconds, timed_seconds
from autotune.values.measurement import Measurement

RUNS = 3
"""Number of baseline processes; two processes differ by more than the blocks of one."""
PLAN = MeasurePlan(max_seconds=1.5)
"""Plan of each baseline process, capped at 1.5 s: more processes help more than more blocks."""
_DIAGNOSIS_SECONDS = 5.0


def before_runs(search: SearchRun, taken: Sequence[float]) -> float:
    """Estimate the seconds until the result, with further baseline processes to come.

    `taken` holds the seconds of those that are over.
    """
    host = 0.0 if taken else search.context.host_seconds
    left = max(1, RUNS - len(taken)) * _a_run(taken)  # a disturbed process is repeated
    return host + left + before_probes(search, taken)


def before_probes(search: SearchRun, taken: Sequence[float]) -> float:
    """Estimate the seconds until the result, with the baseline's accuracy to be measured next."""
    a_seed = _proof_seconds(search) / len(SEEDS)
    return a_seed + search.context.start_seconds + before_diagnosis(search, taken)


def before_diagnosis(search: SearchRun, taken: Sequence[float]) -> float:
    """Estimate the seconds until the result, with the diagnosis to come next."""
    context, each = search.context, _a_run(taken)
    diagnosis = context.start_seconds + _DIAGNOSIS_SECONDS
    a_round = round_host_seconds(context) + 2 * each
    # A candidate's seeds need as many of the baseline's beside them, hence twice.
    conclusion = LOOKS[0] * a_round + 2 * _proof_seconds(search) + LIMITS_SECONDS
    trials = (min(context.trials, context.space.size) - 1) * (context.start_seconds + each)
    if context.time_budget_seconds is not None:
        rest = context.time_budget_seconds - search.elapsed_seconds - diagnosis - conclusion
        trials = min(trials, max(0.0, rest))
    return diagnosis + trials + conclusion


def least_seconds(search: SearchRun, run: Measurement, trials: int) -> float:
    """Return the fewest seconds from the baseline's first process to a result.

    Each trial is assumed to take as long as that process, and the fewest rounds to decide. One
    accuracy seed of the baseline is counted, because some results need no more.

    Args:
        search: the search.
        run: the baseline's first process.
        trials: number of trials beside the baseline.
    """
    a_seed = _proof_seconds(search) / len(SEEDS)
    each = process_seconds(run)
    return (RUNS - 1 + trials) * each + a_seed + LOOKS[0] * _round_seconds(search, run, each)


def costs_of(search: SearchRun, runs: Sequence[Measurement]) -> CostsMeasured:
    """Return the seconds of trials, rounds and seeds, estimated from the baseline's processes."""
    context = search.context
    each = run_seconds(search, runs)
    timing = min(each, median(map(timed_seconds, runs)))
    dataset = 0.0 if context.is_dataset_shared else context.dataset_seconds
    has_quality = context.options.workload.has_quality
    return CostsMeasured(
        start_seconds=max(0.0, each - timing - dataset),
        timing_seconds=timing,
        dataset_seconds=context.dataset_seconds,
        is_dataset_shared=context.is_dataset_shared,
        round_seconds=median(_round_seconds(search, run, each) for run in runs),
        seed_seconds=search.study.notes.seed_seconds if has_quality else None,
    )


def run_seconds(search: SearchRun, runs: Sequence[Measurement]) -> float:
    """Return the median seconds of a baseline process, from its request to its outcome.

    If the study does not know them, they are estimated from the baseline's `runs`.
    """
    known = search.study.notes.run_seconds
    return median(map(process_seconds, runs)) if known is None else known


def _round_seconds(search: SearchRun, run: Measurement, seconds: float) -> float:
    """Return the seconds of a round with the baseline and one candidate that is as fast.

    `seconds` are those of the whole baseline process of `run`.
    """
    timing = in_a_round([block.seconds for block in run.blocks], seconds)
    return 2 * timing + round_host_seconds(search.context)


def _a_run(taken: Sequence[float]) -> float:
    return median(taken) if taken else PLAN.max_seconds


def _proof_seconds(search: SearchRun) -> float:
    """Return the seconds to train on all of `SEEDS`; 0 for a script without a metric."""
    context = search.context
    return len(SEEDS) * probe_seconds(context) if context.options.workload.has_quality else 0.0
