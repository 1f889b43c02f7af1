"""Candidates: trials that may become the result, each with its state from trial to result."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from statistics import median

import numpy as np

from autotune.comparison.candidate_choice import Choosing, choose
from autotune.comparison.rounds import (
    PLAN,
    Conditions,
    Course,
    PairedComparison,
    Participant,
    time_in_round,
)
from autotune.comparison.sequential_test import LOOKS
from autotune.configuration.job import Measure
from autotune.configuration.training_config import TrainingConfig
from autotune.context.budget_clock import OUT_OF_TIME
from autotune.sampling.acquisition import Acquisition, Observations, Posterior
from autotune.sampling.encoding import Encoding
from autotune.searching.confirmation.result import ColdCosts, Confirmed, confirmed_by
from autotune.searching.run import events
from autotune.searching.run.search_run import Accuracy, SearchRun
from autotune.searching.run.time_budget import LIMITS_SECONDS
from autotune.searching.trials.trial_plan import least_samples
from autotune.study.facts import CandidateLog
from autotune.study.finished import FinishedTrial
from autotune.values.measurement import UNSTEADY, Measurement
from autotune.values.outcome import Failure

TOO_LATE = "the time budget ended before it was confirmed"
"""Reason for a candidate that there was no time to test."""


class State(Enum):
    """State of a candidate; `_NEXT` has the transitions."""

    WAITING = "waiting"
    """It may be tested, or be chosen for that among several."""
    IN_TEST = "in test"
    """It is accurate enough, and timed against the baseline."""
    REFUSED = "refused"
    """It is not accurate enough, or its rounds did not show that it is faster."""
    FAILED = "failed"
    """It could not be probed or timed again, which does not tell whether it is faster."""
    UNDECIDED = "undecided"
    """The time was up before it had enough rounds to decide."""
    DROPPED = "dropped"
    """It is not tested: known seeds show it to be less accurate, or too many were tested."""
    CONFIRMED = "confirmed"
    """It is the result."""


_NEXT = {
    State.WAITING: {State.IN_TEST, State.REFUSED, State.FAILED, State.UNDECIDED, State.DROPPED},
    State.IN_TEST: {State.REFUSED, State.FAILED, State.UNDECIDED, State.CONFIRMED},
}


@dataclass(eq=False)
class Candidate:
    """A trial with the posterior of its worth by the objective, from all trials."""

    trial: FinishedTrial
    posterior: Posterior
    state: State = State.WAITING
    was_tested: bool = False
    qualities: tuple[float, ...] = ()
    """Quality per accuracy seed; empty until it is known to be accurate enough."""
    comparison: PairedComparison | None = None
    """Its rounds; None without any."""
    choosing: tuple[float, ...] = ()
    """Ratios of the last rounds that chose between it and others; they are no evidence."""
    set_aside_for: int | None = None
    """Number of the trial that those rounds chose instead; None if they chose this one."""
    reason: str = ""
    """Reason why it was refused, failed or is undecided."""

    @property
    def participant(self) -> Participant:
        """The candidate in rounds."""
        return Participant(f"trial{self.trial.number:04d}", self.trial.config)

    @property
    def is_beaten(self) -> bool:
        """True if it was refused and its rounds do not show that it is faster."""
        timed = self.comparison
        return self.state is State.REFUSED and timed is not None and not timed.is_faster

    def enter_test(self) -> None:
        """Begin to be timed against the baseline."""
        self._move(State.IN_TEST)
        self.was_tested = True

    def add_round(self, comparison: PairedComparison, seconds_left: float) -> events.RoundEnded:
        """Note the rounds of this test so far; `seconds_left` is the estimate until best.yaml."""
        self.comparison = comparison
        return self._ended(comparison, seconds_left)

    def add_choosing_round(
        self, comparison: PairedComparison, seconds_left: float
    ) -> events.RoundEnded:
        """Note the rounds so far that choose between it and others."""
        self.choosing, self.set_aside_for = comparison.ratios, None
        return self._ended(comparison, seconds_left)

    def _ended(self, comparison: PairedComparison, seconds_left: float) -> events.RoundEnded:
        ratios, interval = comparison.ratios, comparison.interval
        return events.RoundEnded(
            self.trial.config, ratios, interval, seconds_left, comparison.disturbed
        )

    def set_aside(self, other: Candidate) -> events.CandidateSetAside:
        """Leave the test to another candidate, and wait."""
        self.set_aside_for = other.trial.number
        return events.CandidateSetAside(self.trial, other.trial)

    def refuse(self, reason: str) -> events.CandidateRefused:
        """End as refused."""
        self._move(State.REFUSED)
        self.reason = reason
        return events.CandidateRefused(self.trial, reason)

    def fail(self, reason: str) -> events.CandidateRefused:
        """End as failed, or as undecided if that was for lack of time."""
        if OUT_OF_TIME in reason:
            return self.run_out(reason)
        self._move(State.FAILED)
        self.reason = reason
        return events.CandidateRefused(self.trial, reason)

    def run_out(self, reason: str = TOO_LATE) -> events.CandidateRefused:
        """End as undecided, for lack of time."""
        self._move(State.UNDECIDED)
        self.reason = reason
        return events.CandidateRefused(self.trial, reason)

    def drop(self) -> None:
        """End without a test, or without another."""
        self._move(State.DROPPED)

    def confirm(self) -> Confirmed:
        """End as the result, with the evidence of its rounds and seeds."""
        assert self.comparison is not None, "it won rounds"
        self._move(State.CONFIRMED)
        return confirmed_by(self.comparison, self.trial, self.qualities)

    def _move(self, state: State) -> None:
        assert state in _NEXT.get(self.state, ()), f"{self.state} -> {state}"
        self.state = state

    def log(self) -> CandidateLog | None:
        """Return what became of it, for later readers; None if it was neither tested nor refused.

        A void round leaves no ratio.
        """
        log = CandidateLog(
            choosing=tuple(round(ratio, 4) for ratio in self.choosing) or None,
            set_aside_for=self.set_aside_for,
            refused=self.reason or None,
        )
        if self.comparison is not None:
            low, high = self.comparison.interval
            log = replace(
                log,
                ratios=tuple(round(ratio, 4) for ratio in self.comparison.ratios),
                ci95=(round(low, 4), round(high, 4)),
                disturbed=self.comparison.disturbed or None,
            )
        return None if log == CandidateLog() else log


def candidates(search: SearchRun, accuracy: Accuracy, costs: ColdCosts) -> list[Candidate]:
    """Return the feasible trials with a posterior above the baseline's, the fastest first.

    Trials that were stopped early or too slow to be probed are included, because the faster ones
    may be refused. Trials that probes show to be less accurate are not.
    """
    measured = [t for t in search.study.finished() if t.details.samples_per_second is not None]
    worths = {trial.number: worth(search, costs, trial, _rate(trial)) for trial in measured}
    feasible = [
        trial
        for trial in measured[1:]
        if trial.verdict.feasible
        and UNSTEADY not in (trial.details.flags or ())
        and not accuracy.prober.speaks_against(trial.config)
    ]
    if not feasible:
        return []
    encoding = Encoding(search.context.space)
    seen = Observations(
        encoding.rows([trial.config for trial in measured]),
        np.array([worths[trial.number] for trial in measured]),
        [trial.verdict.feasible for trial in measured],
        [False] * len(measured),
        np.full(len(measured), np.nan),
    )
    rows = encoding.rows([search.baseline.config, *(trial.config for trial in feasible)])
    own, *posteriors = Acquisition(encoding, seen).posteriors(rows)
    found = (
        Candidate(t, b) for t, b in zip(feasible, posteriors, strict=True) if b.mean > own.mean
    )
    return sorted(found, key=lambda one: -one.posterior.mean)


def contenders(waiting: Sequence[Candidate]) -> list[Candidate]:
    """Return the first candidate, and those that are not clearly slower."""
    return [one for one in waiting if not one.posterior.is_clearly_below(waiting[0].posterior)]


def worth(search: SearchRun, costs: ColdCosts, trial: FinishedTrial, rate: float) -> float:
    """Return a trial's worth by the objective at `rate`, with the cost of compiling cold.

    Two trials that compile the same code are charged alike, whichever of them came first.
    """
    return search.context.objective.worth(rate, costs.fixed_seconds_of(trial))


def _rate(trial: FinishedTrial) -> float:
    return (trial.details.samples_per_second or 0.0) / (trial.details.machine_speed or 1.0)


def choose_by_rounds(
    search: SearchRun, costs: ColdCosts, group: Sequence[Candidate]
) -> Generator[events.Event, None, Candidate | None]:
    """Choose one of the candidates; None if there is none, all fail or the time is up.

    One alone needs no rounds.
    """
    left = list(group)
    if len(left) < 2:  # noqa: PLR2004
        return next(iter(left), None)
    members = {one.participant: one for one in group}
    posteriors = {participant: one.posterior for participant, one in members.items()}
    taken: list[float] = []
    since = time.monotonic()
    for state in choose(course_of(search, costs, group), list(members), posteriors):
        taken.append(time.monotonic() - since)
        coming = max(0, len(group) + 1 - state.rounds) + LOOKS[0]
        yield from _told(state, members, coming * median(taken) + LIMITS_SECONDS)
        gone = [members[one] for one in (*state.failed, *state.set_aside)]
        left = [one for one in left if one not in gone]
        if search.clock.is_over:
            yield from [one.run_out() for one in left]
            return None
        since = time.monotonic()
    return next(iter(left), None)


def _told(
    state: Choosing, members: Mapping[Participant, Candidate], seconds_left: float
) -> Iterator[events.Event]:
    """Note the state of a choice in its candidates, and yield the events of the round."""
    if state.void:
        yield events.RoundVoid(state.rounds + 1, state.void, seconds_left)
    else:
        for participant, comparison in state.comparisons.items():
            yield members[participant].add_choosing_round(comparison, seconds_left)
    for participant, reason in state.failed.items():
        yield members[participant].fail(reason)
    for participant, other in state.set_aside.items():
        yield members[participant].set_aside(members[other])


def course_of(search: SearchRun, costs: ColdCosts, group: Sequence[Candidate]) -> Course:
    """Return the setup of rounds, with the objective and the limits of the search."""
    context = search.context

    def time(config: TrainingConfig, folder: Path, conditions: Conditions) -> Measurement | Failure:
        job = context.job(Measure(conditions.plan), config)
        job = replace(job, host=conditions.host, seed=conditions.seed)
        run = time_in_round(search.runner, job, folder)
        return search.comparable(run) if isinstance(run, Measurement) else run

    def worth(config: TrainingConfig, run: Measurement) -> float:
        fixed = costs.fixed_seconds(config, run)
        return context.objective.worth(run.samples_per_second, fixed)

    return Course(
        time=time,
        worth=worth,
        baseline=Participant("baseline", context.baseline),
        folder=search.folder("confirm", "-".join(f"{one.trial.number:04d}" for one in group)),
        seed=context.options.sampling.seed,
        memory_limit_bytes=context.memory_limit_bytes,
        host_seconds=context.host_seconds,
        may_repeat=lambda: not search.clock.is_over,
        plan=replace(PLAN, least_samples=least_samples(search)),
    )
