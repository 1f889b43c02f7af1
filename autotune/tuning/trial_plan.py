"""How long a trial is timed, no longer than it has to be told from others, and when it hangs."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import stdev

from autotune.config import TrainingConfig
from autotune.job import MeasurePlan
from autotune.tuning.session import Session
from autotune.tuning.storing.own_runs import noted_runs
from autotune.tuning.storing.study import best_feasible

# A trial may take this many times the baseline's seconds, and this long more where it compiles.
_SLOWER_THAN_BASELINE = 6
_LEAST_DEADLINE_SECONDS = 60.0
_COMPILE_ALLOWANCE_SECONDS = 300.0
_BLOCK_SECONDS = 0.1
# More is no noise of processes but one that was disturbed.
_MOST_APART = 0.1


def trial_plan(session: Session, incumbent_seconds_per_sample: float | None = None) -> MeasurePlan:
    """Timed no finer than two processes of the same settings differ, and given up where it lost.

    So blocks begin short: where those few are not fine enough, there are more of them.
    """
    usual = MeasurePlan()
    return replace(
        usual,
        block_seconds=_BLOCK_SECONDS,
        precision=max(usual.precision, spread_of_processes(session)),
        incumbent_seconds_per_sample=incumbent_seconds_per_sample,
    )


def spread_of_processes(session: Session) -> float:
    """Deviation of the logarithm of the rate, as far as the baseline's few runs tell."""
    runs = noted_runs(session.study) or ()
    rates = [math.log(run.samples_per_second) for run in runs]
    return min(stdev(rates), _MOST_APART) if len(rates) > 1 else 0.0


def to_beat(session: Session, machine_speed: float) -> float | None:
    """Seconds per sample that the best trial surely keeps to, as fast as the machine is now.

    None where there is no telling from them: who starts sooner may win a short run all the same.
    """
    best = best_feasible(session.study.finished())
    if best is None or session.scene.objective.run_samples is not None:
        return None
    low = best.details["samples_per_second_ci95"][0] / best.details.get("machine_speed", 1.0)
    return 1 / float(low * machine_speed)


def deadline(session: Session, config: TrainingConfig) -> float:
    """Seconds after which a trial of `config` hangs rather than trains."""
    baseline_seconds = session.baseline.details["process_seconds"]
    seconds = max(_LEAST_DEADLINE_SECONDS, _SLOWER_THAN_BASELINE * baseline_seconds)
    if config["compile_mode"] is not None:
        seconds += _COMPILE_ALLOWANCE_SECONDS
    return float(min(seconds, session.scene.options.trial_timeout_seconds))
