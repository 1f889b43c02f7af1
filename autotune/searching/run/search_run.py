"""One run of a search: the state that its phases share."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median

from autotune.accuracy.probes import (
    AccuracyProber,
    own_accuracy_fails,
)
from autotune.accuracy.seed_budget import SeedBudget
from autotune.configuration.verdict import AccuracyRule
from autotune.context.search_context import SearchContext
from autotune.context.time_budget import TimeBudget
from autotune.processes.runner import Runner
from autotune.processes.stop import Stop
from autotune.searching.run.confirmation_time import ConfirmationTime, trial_seconds
from autotune.searching.run.diagnosis import Diagnosis, narrowed
from autotune.searching.run.events import TrialEnded
from autotune.searching.run.stopping import ENOUGH, PATIENCE, has_settled, is_at_limit
from autotune.storage.trial_details import TrialDetails
from autotune.study.study import FinishedTrial, TuningStudy, best_feasible
from autotune.values.errors import WorkloadError
from autotune.values.measurement import Measurement
from autotune.values.objectives import fixed_seconds
from autotune.values.outcome import Measured, OutOfMemory, TrialOutcome
from autotune.values.text import readable

_LEAST_NOTED = 0.2
_TIME_UP = "the time budget is spent"
_TO_CONFIRM = "the time left is needed for the confirmation"
_ALL_AFFORDABLE = "every configuration that compiles in time was tried"
FOR_LACK_OF_TIME = (_TIME_UP, _TO_CONFIRM, _ALL_AFFORDABLE)
"""Reasons for the end of trials that mean lack of time: more could have been tried."""


@dataclass(frozen=True)
class SearchRun:
    """Context, runner and study of one run of a search, on one device."""

    context: SearchContext
    runner: Runner
    study: TuningStudy
    ceiling: float | None = None
    """Samples per second that no configuration of the space can exceed; None if not known."""
    started: float = field(default_factory=time.monotonic)
    stop: Stop = field(default_factory=Stop)
    worker: str = ""
    """Name of an extra device or worker; empty for the search's own device."""

    def narrowed_by(self, diagnosis: Diagnosis) -> SearchRun:
        """Return the same search on the space without values that cannot matter.

        To be called before the first trial, or with the diagnosis that was noted then.
        """
        space = narrowed(self.context.space, diagnosis)
        self.study.narrow(space)
        # For the time of a run, a configuration at the ceiling may still start faster.
        steady = self.context.objective.run_samples is None
        ceiling = diagnosis.ceiling(space) if steady else None
        return replace(self, context=replace(self.context, space=space), ceiling=ceiling)

    @property
    def budget(self) -> TimeBudget:
        """The time of this run of the search."""
        return TimeBudget(self.context.time_budget_seconds, self.started)

    @property
    def elapsed_seconds(self) -> float:
        """Seconds since this run of the search began."""
        return self.budget.elapsed

    @property
    def baseline(self) -> FinishedTrial:
        """The study's first trial: the user's own settings."""
        return self.study.finished()[0]

    def folder(self, *names: str) -> Path:
        """Return the folder for the files of one child process."""
        return self.context.options.folder.joinpath("trials", *names)

    @contextmanager
    def noting_seconds(self, phase: str) -> Iterator[None]:
        """Note the seconds of a with-block under `phase`, if the study has no trial yet."""
        start = time.monotonic()
        yield
        if not self.study.finished():
            self.study.notes.set_phase_seconds(phase, time.monotonic() - start)

    @contextmanager
    def adding_seconds(self, phase: str) -> Iterator[None]:
        """Add the seconds of a with-block to those noted under `phase`, unless negligible."""
        start = time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - start
            if seconds > _LEAST_NOTED:
                self.study.notes.add_phase_seconds(phase, seconds)

    def end_reason(self) -> str | None:
        """Return the reason why no further trial runs; None if there is one and time for it."""
        finished = self.study.finished()
        if len(finished) >= self.context.trials:
            return f"all {self.context.trials} trials are done"
        if self.seconds_left() < self.trial_seconds():
            return _TO_CONFIRM if self.candidate else _TIME_UP
        if self.context.may_settle and has_settled(finished):
            return f"no improvement of 1 % in {PATIENCE} trials"
        if is_at_limit(finished, self.ceiling):
            return f"{100 * ENOUGH:.0f} % of {self.ceiling:.1f}/s, which computing alone reaches"
        if not self.study.exhausted():
            return None
        return "every configuration was tried" if not self.study.skipped_modes else _ALL_AFFORDABLE

    @property
    def candidate(self) -> FinishedTrial | None:
        """The best feasible trial, if it is faster than the baseline beyond the noise."""
        return self.confirmation_time.candidate if self.study.finished() else None

    def seconds_left(self) -> float:
        """Return the seconds of the time budget left for trials; infinite without a budget.

        The seconds to confirm the current candidate are set aside. Without a candidate, none are,
        because a result that keeps the baseline needs no confirmation.
        """
        kept = self.conclusion_seconds() if self.candidate else 0.0
        return self.budget.left - kept

    def seconds_for_trials(self) -> float:
        """Return the seconds left for trials if some candidate will need a confirmation."""
        return self.budget.left - self.conclusion_seconds()

    def trial_seconds(self) -> float:
        """Return the median seconds of the finished trials."""
        finished = self.study.finished()
        return median(map(trial_seconds, finished[1:] or finished)) if finished else 0.0

    def spent(self) -> float:
        """Return the share of the search that is over, 0 to 1: of its trials or their time.

        The larger of the two counts.
        """
        trials = min(self.context.trials, self.context.space.size)
        gone, left = self.elapsed_seconds, max(0.0, self.seconds_left())
        return max(len(self.study.finished()) / trials, gone / (gone + left or 1.0))

    def over_budget(self) -> bool:
        """Return whether the time budget is spent."""
        return self.budget.is_over

    def conclusion_seconds(self) -> float:
        """Estimate the seconds of everything that comes after the trials."""
        return self.confirmation_time.seconds() if self.study.finished() else 0.0

    @property
    def confirmation_time(self) -> ConfirmationTime:
        """Estimates of the seconds that the end of the search needs."""
        return ConfirmationTime(self.context, self.study)

    def eta_seconds(self) -> float:
        """Estimate the seconds until best.yaml is written.

        A trial to come is expected to take the median of those so far: one that compiled for
        minutes or failed at once says little of the others.
        """
        seconds = [trial.details.seconds or 0.0 for trial in self.study.finished()[1:]]
        trials = min(self.context.trials, self.context.space.size) - len(seconds) - 1
        a_trial = median(seconds) if seconds else self.baseline.details.process_seconds or 0.0
        trials_seconds = max(0, trials) * a_trial / self.context.options.at_once
        left = min(trials_seconds, max(0.0, self.seconds_left()))
        return left + self.conclusion_seconds()

    def comparable(self, run: Measurement, machine_speed: float = 1.0) -> Measurement:
        """Return a run adjusted for comparison, so that neither forking nor drift matters.

        It is charged the start of a fresh interpreter, and it carries the machine's speed relative
        to the search's beginning.
        """
        start = self.context.start_seconds or run.start_seconds
        # A fork did not pay for the start of a fresh interpreter.
        shared = run.shared_seconds + max(0.0, start - run.start_seconds)
        speed = round(machine_speed, 4)
        return replace(run, start_seconds=start, shared_seconds=shared, machine_speed=speed)

    def trial_ended(self, trial: FinishedTrial) -> TrialEnded:
        """Return the event for a trial that has just finished."""
        best = best_feasible(self.study.finished()) or self.baseline
        return TrialEnded(trial, self.baseline, best, self.elapsed_seconds, self.eta_seconds())


@dataclass(frozen=True)
class Accuracy:
    """Accuracy judgement of this search: the prober, the rule, and the seed budget."""

    prober: AccuracyProber
    seed_budget: SeedBudget = field(default_factory=SeedBudget)

    @property
    def rule(self) -> AccuracyRule:
        """The accuracy rule, from the baseline's quality over all known seeds.

        Raises:
            WorkloadError: the baseline's quality cannot be measured.
        """
        found = self.prober.rule()
        if isinstance(found, AccuracyRule):
            return found
        raise WorkloadError(own_accuracy_fails(found))


def details_of(outcome: TrialOutcome, seconds: float) -> TrialDetails:
    """Return the details of a trial that its outcome shows.

    Numbers are rounded for readers of a dashboard's table. The measurement is exact: later
    computations use it.
    """
    details = TrialDetails(
        outcome=outcome.kind,
        seconds=round(seconds, 3),
        foreseen=isinstance(outcome, OutOfMemory) and outcome.foreseen,
    )
    if not isinstance(outcome, Measured):
        return details
    run = outcome.measurement
    low, high = run.samples_per_second_interval
    return replace(
        details,
        samples_per_second=readable(run.samples_per_second),
        samples_per_second_ci95=(readable(low), readable(high)),
        peak_memory_bytes=run.peak_memory_bytes,
        compile_seconds=readable(run.compile_seconds),
        one_time_seconds=readable(run.one_time_seconds),
        fixed_seconds=readable(fixed_seconds(run)),
        process_seconds=readable(process_seconds(run)),
        wait_share=readable(run.wait_share),
        machine_speed=run.machine_speed,
        disturbed_blocks=run.disturbed_blocks,
        flags=run.flags,
        stored_measurement=asdict(run),
    )


def process_seconds(run: Measurement) -> float:
    """Return the seconds from the start of the process to the end of its last block.

    Seconds that a warm host paid once for all of its forks do not count.
    """
    return run.start_seconds + run.build_seconds - run.shared_seconds + timed_seconds(run)


def timed_seconds(run: Measurement) -> float:
    """Return the seconds of all steps, including the warm-up, and of the epoch boundaries."""
    return (
        sum(run.warmup_step_seconds)
        + sum(block.seconds for block in run.blocks)
        + sum(run.boundary_seconds)
    )
