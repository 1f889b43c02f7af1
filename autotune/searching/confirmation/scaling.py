"""Scaling: the throughput of all processes over that of one, on as many samples a step.

The one process has the cores' threads and the loader's workers of all, and adds up the gradients of
as many batches as they have together. Both are timed in fresh processes, in alternation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

from autotune.accuracy.accuracy_verdict import AccuracyProber
from autotune.comparison.rounds import (
    PLAN,
    PairedComparison,
    orders,
    time_in_round,
)
from autotune.configuration.evidence_parts import OneProcess, Scaling
from autotune.configuration.job import Job, Measure
from autotune.configuration.training_config import TrainingConfig
from autotune.context.search_context import SearchContext
from autotune.knobs import KNOBS
from autotune.knobs.base import Value
from autotune.searching.run.time_budget import SCALING_ROUNDS, is_compared_with_one
from autotune.values.measurement import Measurement
from autotune.values.statistics import median_interval

_ALL, _ONE = "all", "one"


def time_scaling(prober: AccuracyProber, config: TrainingConfig) -> Scaling | None:
    """Time all processes of this host against one; None if that cannot be, or if a round fails.

    A script's batches are its own, and one process has a share of what a launcher has on all hosts.

    Args:
        prober: context, runner and study of the search.
        config: the result's settings.
    """
    context = prober.context
    alone = one_of_all(config, context)
    if not is_compared_with_one(context) or alone is None:
        return None
    jobs = {_ALL: context.job(Measure(PLAN), config), _ONE: _job_of_one(context, config, alone)}
    compared = PairedComparison()
    folder = context.options.study.folder / "trials" / "scaling"
    for one, all_ in _rounds(prober, jobs, folder):
        costs = (one.seconds_per_sample, all_.seconds_per_sample)
        compared = compared.after(one, all_, costs)
    return _told(compared, alone.differences(config.alone)) if compared.ratios else None


def one_of_all(config: TrainingConfig, context: SearchContext) -> TrainingConfig | None:
    """Return the settings of one process that does the work of all; None if it cannot."""
    count, cores = context.processes, context.machine.host.usable_cores
    threads, workers = config["num_threads"], int(config["num_workers"] or 0)
    settings: dict[str, Value] = {
        "accumulation_steps": count * int(config["accumulation_steps"] or 1),
        "num_workers": min(count * workers, max(cores, workers)),
    }
    if isinstance(threads, int):
        settings["num_threads"] = min(count * threads, max(cores, threads))
    if any(KNOBS[name].values.fault(value) for name, value in settings.items()):
        return None
    return config.alone.replace(**settings)


def _job_of_one(context: SearchContext, config: TrainingConfig, alone: TrainingConfig) -> Job:
    """Return the job of the one process, at the learning rate of all."""
    of_all = context.job(Measure(PLAN), config)
    return replace(of_all, config=alone.as_dict(), processes=1, launch=())


def _rounds(
    prober: AccuracyProber, jobs: dict[str, Job], folder: Path
) -> Iterator[tuple[Measurement, Measurement]]:
    """Yield the timings of one and of all for each round, until one fails or time is up."""
    schedule = orders(len(jobs), prober.context.options.sampling.seed)
    for number in range(SCALING_ROUNDS):
        found: dict[str, Measurement] = {}
        for place in next(schedule):
            name = list(jobs)[place]
            timed = time_in_round(prober.runner, jobs[name], folder / f"{number}-{name}")
            if not isinstance(timed, Measurement):
                return
            found[name] = timed
        yield found[_ONE], found[_ALL]


def _told(compared: PairedComparison, settings: dict[str, Value]) -> Scaling:
    rates = [run.samples_per_second for run in compared.baseline]
    low, high = (round(rate, 1) for rate in median_interval(rates))
    lowest, highest = (round(bound, 4) for bound in compared.interval)
    return Scaling(
        one_process=OneProcess(
            settings=settings,
            samples_per_second=round(median(rates), 1),
            ci95=(low, high),
        ),
        ratio=round(compared.ratio, 4),
        ci95=(lowest, highest),
        rounds=len(compared.ratios),
    )
