"""One run of a search: what its phases share."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from autotune.constraints import AccuracyRule
from autotune.errors import WorkloadError
from autotune.measurement import Measurement
from autotune.objectives import fixed_seconds
from autotune.outcome import Measured, OutOfMemory, TrialOutcome
from autotune.text import readable
from autotune.tuning.diagnosis import Diagnosis, narrowed
from autotune.tuning.events import TrialEnded
from autotune.tuning.judging.accuracy import (
    AccuracyProber,
    own_accuracy_fails,
)
from autotune.tuning.judging.reliance import Reliance
from autotune.tuning.reserve import Reserve
from autotune.tuning.running.runner import Runner
from autotune.tuning.running.stop import Stop
from autotune.tuning.sampling.stopping import ENOUGH, PATIENCE, has_settled, is_at_limit
from autotune.tuning.scene import Scene
from autotune.tuning.storing.study import FinishedTrial, TuningStudy, best_feasible

PHASE_SECONDS = "phase_seconds"
"""Of the study's notes: what was done before its first trial to the seconds that took."""
_LEAST_NOTED = 0.2


@dataclass(frozen=True)
class Session:
    """Scene, runner and study of a search that is going on."""

    scene: Scene
    runner: Runner
    study: TuningStudy
    ceiling: float | None = None
    """Samples per second that no configuration of the space can exceed, where that is known."""
    started: float = field(default_factory=time.monotonic)
    stop: Stop = field(default_factory=Stop)
    worker: str = ""
    """Who runs trials beside the search itself; empty for that."""

    def narrowed_by(self, diagnosis: Diagnosis) -> Session:
        """The same search without what cannot matter; before its first trial, or as noted then."""
        space = narrowed(self.scene.space, diagnosis)
        self.study.narrow(space)
        # What is paid once may still become less, where that counts.
        steady = self.scene.objective.run_samples is None
        ceiling = diagnosis.ceiling(space) if steady else None
        return replace(self, scene=replace(self.scene, space=space), ceiling=ceiling)

    @property
    def elapsed_seconds(self) -> float:
        """Since this run of the search began."""
        return time.monotonic() - self.started

    @property
    def baseline(self) -> FinishedTrial:
        """The study's first trial: the user's own settings."""
        return self.study.finished()[0]

    def folder(self, *names: str) -> Path:
        """Where the files of one child go."""
        return self.scene.options.folder.joinpath("trials", *names)

    @contextmanager
    def noting_seconds(self, phase: str) -> Iterator[None]:
        """Note what the block took, where the study has no trial yet."""
        start = time.monotonic()
        yield
        if not self.study.finished():
            seconds = round(time.monotonic() - start, 1)
            self.study.note_entry(PHASE_SECONDS, phase, seconds)

    @contextmanager
    def adding_seconds(self, phase: str) -> Iterator[None]:
        """Add what the block took to what the study notes of a phase, where it took any."""
        start = time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - start
            if seconds > _LEAST_NOTED:
                before = self.study.noted(PHASE_SECONDS, {}).get(phase, 0.0)
                self.study.note_entry(PHASE_SECONDS, phase, round(before + seconds, 1))

    def end_reason(self) -> str | None:
        """Why there is no further trial; None while there is, with time left to confirm it."""
        finished = self.study.finished()
        if len(finished) >= self.scene.trials:
            return f"all {self.scene.trials} trials are done"
        if self.seconds_left() <= 0:
            return "what is left of the time is needed to confirm"
        if self.scene.may_settle and has_settled(finished):
            return f"nothing became a percent better in {PATIENCE} trials"
        if is_at_limit(finished, self.ceiling):
            return f"{100 * ENOUGH:.0f} % of {self.ceiling:.1f}/s, which computing alone reaches"
        return "every configuration is known" if self.study.exhausted() else None

    def seconds_left(self) -> float:
        """Of the time budget, less what the conclusion will take; infinite without a budget."""
        budget = self.scene.time_budget_seconds
        if budget is None:
            return float("inf")
        return budget - self.elapsed_seconds - self.conclusion_seconds()

    def spent(self) -> float:
        """Share of the trials that are done, or of the time for them, whichever is more."""
        trials = min(self.scene.trials, self.scene.space.size)
        gone, left = self.elapsed_seconds, max(0.0, self.seconds_left())
        return max(len(self.study.finished()) / trials, gone / (gone + left or 1.0))

    def over_budget(self) -> bool:
        """Whether the time budget is spent, conclusion or not."""
        budget = self.scene.time_budget_seconds
        return budget is not None and self.elapsed_seconds > budget

    def conclusion_seconds(self) -> float:
        """An estimate of what comes after the trials."""
        return self.reserve.seconds() if self.study.finished() else 0.0

    @property
    def reserve(self) -> Reserve:
        """What is kept of the time for that."""
        return Reserve(self.scene, self.study)

    def eta_seconds(self) -> float:
        """An estimate of the time until the answer.

        The trials so far speak for those to come by their median: one that compiled for minutes or
        failed at once says little of the others.
        """
        seconds = [trial.details["seconds"] for trial in self.study.finished()[1:]]
        trials = min(self.scene.trials, self.scene.space.size) - len(seconds) - 1
        a_trial: float = median(seconds) if seconds else self.baseline.details["process_seconds"]
        trials_seconds = max(0, trials) * a_trial / self.scene.options.at_once
        left = min(trials_seconds, max(0.0, self.seconds_left()))
        return left + self.conclusion_seconds()

    def comparable(self, run: Measurement, machine_speed: float = 1.0) -> Measurement:
        """A run as trials are compared: none gains by having been forked, or by when it ran."""
        start = self.scene.start_seconds or run.start_seconds
        return replace(run, start_seconds=start, machine_speed=round(machine_speed, 4))

    def trial_ended(self, trial: FinishedTrial) -> TrialEnded:
        """The event for a trial that was just told."""
        best = best_feasible(self.study.finished()) or self.baseline
        return TrialEnded(trial, self.baseline, best, self.elapsed_seconds, self.eta_seconds())


@dataclass(frozen=True)
class Accuracy:
    """How this search judges accuracy: who runs the probes, and the rule once it is needed."""

    prober: AccuracyProber
    reliance: Reliance = field(default_factory=Reliance)

    @property
    def rule(self) -> AccuracyRule:
        """What the baseline reaches, over as many seeds as are known.

        Raises:
            WorkloadError: that cannot be measured.
        """
        found = self.prober.rule()
        if isinstance(found, AccuracyRule):
            return found
        raise WorkloadError(own_accuracy_fails(found))


def details_of(outcome: TrialOutcome, seconds: float) -> dict[str, Any]:
    """What a trial's attributes say besides its verdict; JSON values only.

    Numbers are rounded for people who read them in a dashboard's table, except for `measurement`:
    what is computed again from a run is computed from that.
    """
    details: dict[str, Any] = {"outcome": outcome.kind, "seconds": round(seconds, 3)}
    if isinstance(outcome, OutOfMemory) and outcome.foreseen:
        details["foreseen"] = True
    if isinstance(outcome, Measured):
        run = outcome.measurement
        details |= {
            "samples_per_second": readable(run.samples_per_second),
            "samples_per_second_ci95": [*map(readable, run.samples_per_second_interval)],
            "peak_memory_bytes": run.peak_memory_bytes,
            "compile_seconds": readable(run.compile_seconds),
            "one_time_seconds": readable(run.one_time_seconds),
            "fixed_seconds": readable(fixed_seconds(run)),
            "process_seconds": readable(process_seconds(run)),
            "wait_share": readable(run.wait_share),
            "machine_speed": run.machine_speed,
            "disturbed_blocks": run.disturbed_blocks,
            "flags": list(run.flags),
            "measurement": asdict(run),
        }
    return details


def process_seconds(run: Measurement) -> float:
    """Seconds from the start of the process to the end of its last block."""
    return (
        run.start_seconds
        + run.build_seconds
        + sum(run.warmup_step_seconds)
        + sum(block.seconds for block in run.blocks)
        + sum(run.boundary_seconds)
    )
