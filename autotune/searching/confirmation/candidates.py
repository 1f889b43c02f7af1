"""Candidates: trials that may become the result, each with its state from trial to result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from autotune.comparison.rounds import PairedComparison, Participant
from autotune.context.budget_clock import OUT_OF_TIME
from autotune.sampling.acquisition import Acquisition, Observations, Posterior
from autotune.sampling.encoding import Encoding
from autotune.searching.confirmation.compile_costs import ColdCosts
from autotune.searching.confirmation.result import Confirmed, confirmed_by
from autotune.searching.run.events import CandidateRefused, CandidateSetAside, RoundEnded
from autotune.searching.run.search_run import Accuracy, SearchRun
from autotune.study.facts import CandidateLog
from autotune.study.finished import FinishedTrial
from autotune.values.measurement import UNSTEADY

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

    def add_round(self, comparison: PairedComparison, seconds_left: float) -> RoundEnded:
        """Note the rounds of this test so far; `seconds_left` is the estimate until best.yaml."""
        self.comparison = comparison
        return self._ended(comparison, seconds_left)

    def add_choosing_round(self, comparison: PairedComparison, seconds_left: float) -> RoundEnded:
        """Note the rounds so far that choose between it and others."""
        self.choosing, self.set_aside_for = comparison.ratios, None
        return self._ended(comparison, seconds_left)

    def _ended(self, comparison: PairedComparison, seconds_left: float) -> RoundEnded:
        ratios, interval = comparison.ratios, comparison.interval
        return RoundEnded(self.trial.config, ratios, interval, seconds_left, comparison.disturbed)

    def set_aside(self, other: Candidate) -> CandidateSetAside:
        """Leave the test to another candidate, and wait."""
        self.set_aside_for = other.trial.number
        return CandidateSetAside(self.trial, other.trial)

    def refuse(self, reason: str) -> CandidateRefused:
        """End as refused."""
        self._move(State.REFUSED)
        self.reason = reason
        return CandidateRefused(self.trial, reason)

    def fail(self, reason: str) -> CandidateRefused:
        """End as failed, or as undecided if that was for lack of time."""
        if OUT_OF_TIME in reason:
            return self.run_out(reason)
        self._move(State.FAILED)
        self.reason = reason
        return CandidateRefused(self.trial, reason)

    def run_out(self, reason: str = TOO_LATE) -> CandidateRefused:
        """End as undecided, for lack of time."""
        self._move(State.UNDECIDED)
        self.reason = reason
        return CandidateRefused(self.trial, reason)

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
