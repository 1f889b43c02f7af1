"""One run of a search: the state that its phases share."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from autotune.accuracy.accuracy_verdict import AccuracyProber
from autotune.configuration.constraints import Objective
from autotune.configuration.training_config import TrainingConfig
from autotune.context.search_context import SearchContext
from autotune.process.runner import Runner
from autotune.process.stop import Clock, Stop
from autotune.searching.run.diagnosis import Diagnosis, narrowed
from autotune.searching.run.events import TrialEnded
from autotune.searching.run.time_budget import TimeBudget
from autotune.study.facts import FinishedTrial, TrialDetails, best_feasible
from autotune.study.study import TuningStudy
from autotune.values.measurement import Measurement
from autotune.values.outcome import Measured, NotApplied, OutOfMemory, TrialOutcome
from autotune.values.text import readable


@dataclass(frozen=True)
class SearchRun:
    """Context, runner and study of one run of a search, on one device."""

    context: SearchContext
    runner: Runner
    study: TuningStudy
    may_settle: bool = True
    """True if trials end once another one is not expected to pay."""
    clock: Clock = field(default_factory=Clock)
    """The seconds gone and left of this run."""
    stop: Stop = field(default_factory=Stop)
    worker: str = ""
    """Name of an extra device or worker; empty for the search's own device."""

    def narrowed_by(self, diagnosis: Diagnosis) -> SearchRun:
        """Return the same search on the space without values that cannot matter.

        To be called before the first trial, or with the diagnosis that was noted then.
        """
        space = narrowed(self.context.space, diagnosis)
        if self.context.objective.to_loss:  # rates do not tell which batch gains
            space = replace(space, batch_rates=dict.fromkeys(space.domains["batch_size"], 1.0))
        self.study.narrow(space)
        return replace(self, context=replace(self.context, space=space))

    @property
    def time_budget(self) -> TimeBudget:
        """Estimates of the seconds to come, from the trials so far."""
        return TimeBudget(self.prober, self.clock)

    @property
    def prober(self) -> AccuracyProber:
        """Judges accuracy by the checks and seeds that the study has, and runs missing ones."""
        return AccuracyProber(self.context, self.runner, self.study)

    @property
    def baseline(self) -> FinishedTrial:
        """The study's first trial: the user's own settings."""
        return self.study.finished()[0]

    def objective_of(self, config: TrainingConfig) -> Objective:
        """Return the objective of `config`, with the samples that it takes to a loss, if to one."""
        objective = self.context.objective
        if not objective.to_loss:
            return objective
        return replace(objective, samples_to_loss=self.prober.samples_to_loss(config))

    def folder(self, *names: str) -> Path:
        """Return the folder for the files of one child process."""
        return self.context.options.study.folder.joinpath("trials", *names)

    @contextmanager
    def noting_seconds(self, phase: str) -> Iterator[None]:
        """Note the seconds of a with-block under `phase`, if the study has no trial yet."""
        start = time.monotonic()
        yield
        if not self.study.finished():
            self.study.notes.phase_seconds[phase] = round(time.monotonic() - start, 1)

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
        return TrialEnded(
            trial, self.baseline, best, self.clock.elapsed, self.time_budget.eta_seconds()
        )


def details_of(outcome: TrialOutcome, seconds: float) -> TrialDetails:
    """Return the details of a trial that its outcome shows.

    The throughput is rounded for a dashboard's readers; computations use the exact measurement.
    """
    details = TrialDetails(
        outcome=outcome.kind,
        seconds=round(seconds, 3),
        foreseen=isinstance(outcome, OutOfMemory) and outcome.foreseen,
        not_applied=outcome.knob if isinstance(outcome, NotApplied) else None,
    )
    if not isinstance(outcome, Measured):
        return details
    run = outcome.measurement
    return replace(
        details,
        samples_per_second=readable(run.samples_per_second),
        peak_memory_bytes=run.peak_memory_bytes,
        stored_measurement=asdict(run),
    )
