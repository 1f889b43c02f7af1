"""Further timings of a trial: its rate and the seconds of its rounds are known better then."""

from __future__ import annotations

import time
from collections.abc import Sequence

from autotune.comparison.rounds import timed_calmly
from autotune.configuration.job import Measure
from autotune.searching.run.search_run import SearchRun
from autotune.searching.run.seconds import process_seconds
from autotune.searching.trials.drift import drift_now
from autotune.searching.trials.trial_plan import deadline, trial_plan
from autotune.study.finished import FinishedTrial
from autotune.values.outcome import TrialOutcome
from autotune.values.text import readable


def time_candidate_again(search: SearchRun) -> None:
    """Time the candidate once more where that may leave time for trials; see `to_time_again`.

    The first device does so, in seconds that are set aside. If it fails, its seconds count too.
    """
    budget = search.time_budget
    one = budget.to_time_again
    if one is None or search.worker:
        return
    rates, seconds = timed_again(search, one, drift_now(search))
    if not rates:
        seconds = max(seconds, budget.seconds_again(one))
    search.study.notes.set_seconds_again(one.number, seconds)


def timed_again(
    search: SearchRun, trial: FinishedTrial, speed: float
) -> tuple[Sequence[float], float]:
    """Time a trial once more, and again if that was disturbed; note the rates.

    Returns:
        Samples per second at the machine's first speed, given its `speed` now, none if it failed;
        and the seconds of a timing.
    """
    told = search.study.notes.re_timings.get(trial.number, ())
    job = search.context.job(
        Measure(trial_plan(search)), trial.config, deadline(search, trial.config)
    )
    name = f"{trial.number:04d}-{len(told)}"
    seconds = 0.0

    def run(suffix: str) -> TrialOutcome:
        nonlocal seconds
        start = time.monotonic()
        outcome = search.runner.run(job, search.folder("again", name + suffix))
        seconds = time.monotonic() - start
        return outcome

    runs = timed_calmly(run, may_start=lambda: not search.clock.is_over)
    rates = [readable(one.samples_per_second / speed) for one in runs]
    if runs:
        seconds = max(seconds, process_seconds(runs[-1]))
        search.study.notes.add_re_timings(trial.number, rates)
    return rates, seconds
