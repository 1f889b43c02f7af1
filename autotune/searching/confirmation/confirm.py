"""The confirmation: the fastest candidates race against the baseline until one has won."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from statistics import median

import numpy as np

from autotune.accuracy.accuracy_verdict import INCUMBENT_SEEDS, SEEDS, AccuracyVerdict
from autotune.comparison import rounds
from autotune.comparison.race import ROUND_COUNTS, Standing, race
from autotune.configuration.job import Measure
from autotune.configuration.training_config import TrainingConfig
from autotune.context.budget_clock import OUT_OF_TIME
from autotune.sampling.acquisition import Acquisition, Observations, Posterior
from autotune.sampling.encoding import Encoding
from autotune.searching.confirmation.result import ColdCosts, Confirmed, confirmed_by
from autotune.searching.run import events
from autotune.searching.run.search_run import SearchRun
from autotune.searching.run.time_budget import LIMITS_SECONDS, OVERTIME
from autotune.searching.trials.trial_plan import least_samples
from autotune.study.facts import CandidateLog, Confirmation
from autotune.study.finished import FinishedTrial
from autotune.values import statistics
from autotune.values.measurement import Measurement
from autotune.values.outcome import Failure, Lost, describe
from autotune.values.text import readable

TOO_LATE = "the time budget ended before it was confirmed"
"""Reason for a candidate that there was no time to test."""
_NOT_DECIDED = "the time budget ended before the rounds decided"
_NO_TIME_FOR_SEEDS = "the time left is too short for its short trainings and rounds"
# Processes that each further candidate adds to a race.
_PROCESSES_MORE = 9
MOST_AT_ONCE = 3
"""Most candidates in one race."""
# Most candidates tested in one run, because intervals widen with their number. Choosing is no test.
_MOST_TESTED = 4


class State(Enum):
    """State of a candidate."""

    WAITING = "waiting"
    """It may enter a race."""
    REFUSED = "refused"
    """It is not accurate enough, or its rounds did not show that it is faster."""
    FAILED = "failed"
    """It could not be probed or timed, so it may or may not be faster."""
    UNDECIDED = "undecided"
    """The time was up before it had enough rounds to decide."""
    DROPPED = "dropped"
    """It is not tested: known seeds show it to be less accurate."""
    CONFIRMED = "confirmed"
    """It is the result."""


@dataclass(eq=False)
class Candidate:
    """A trial that may become the result, with the posterior of its worth from all trials."""

    trial: FinishedTrial
    posterior: Posterior
    state: State = State.WAITING
    was_tested: bool = False
    qualities: tuple[float, ...] = ()
    """Quality per accuracy seed; empty until it is known to be accurate enough."""
    seeds_to_loss: tuple[statistics.Part, ...] = ()
    """Samples to the loss that is the objective, the baseline's first, a pair per seed."""
    comparison: rounds.PairedComparison | None = None
    """Its rounds of a test; None without any."""
    set_aside_for: int | None = None
    """Number of the trial that rounds chose instead; None if they chose this one."""
    reason: str = ""
    """Reason why it was refused, failed or is undecided."""

    @property
    def participant(self) -> rounds.Participant:
        """The candidate in rounds."""
        return rounds.Participant(
            f"trial{self.trial.number:04d}", self.trial.config, self.posterior, self.seeds_to_loss
        )

    def end(self, state: State, reason: str) -> events.CandidateRefused:
        """End in this state, or as undecided if that was for lack of time."""
        self.state = State.UNDECIDED if OUT_OF_TIME in reason else state
        self.reason = reason
        return events.CandidateRefused(self.trial, reason)

    def log(self) -> CandidateLog | None:
        """Return what became of it, for later readers; None if it was neither tested nor refused.

        A discarded round leaves no ratio.
        """
        log = CandidateLog(set_aside_for=self.set_aside_for, refused=self.reason or None)
        if (test := self.comparison) is not None:
            low, high = (round(bound, 4) for bound in test.interval)
            ratios = tuple(round(ratio, 4) for ratio in test.ratios)
            log = replace(log, ratios=ratios, ci95=(low, high), disturbed=test.disturbed or None)
        return None if log == CandidateLog() else log


@dataclass
class ConfirmationRun:
    """The confirmation: its candidates, and the races that they go through."""

    search: SearchRun
    runs: tuple[Measurement, ...]
    """The baseline's processes before the trials."""
    candidates: list[Candidate] = field(default_factory=list)
    """All candidates, the fastest first."""
    seconds: float = 0.0
    """Seconds that it has taken."""

    def run(self) -> Generator[events.Event, None, Confirmed | None]:
        """Race candidates; return the first winner, or None without one.

        What became of each candidate is noted in the study at the end. After further trials it may
        be run again: candidates that lost stay so.
        """
        start = time.monotonic()
        self.candidates = self._with_earlier(candidates(self.search, self.costs))
        won = yield from self._until_won()
        log = {one.trial.number: log for one in self.candidates if (log := one.log()) is not None}
        own = (run for test in self.tests for run in test.baseline)
        rates = tuple(readable(run.samples_per_second) for run in own)
        self.seconds += time.monotonic() - start
        self.search.study.notes.confirmation = Confirmation(round(self.seconds, 1), log, rates)
        return won

    def _with_earlier(self, found: list[Candidate]) -> list[Candidate]:
        """Return the candidates `found`, with what became of them before, and others that ended."""
        known = {one.trial.number: one for one in self.candidates}
        for place, one in enumerate(found):
            if (earlier := known.pop(one.trial.number, None)) is not None:
                earlier.posterior, found[place] = one.posterior, earlier
        return [*found, *(one for one in known.values() if one.state is not State.WAITING)]

    @property
    def tests(self) -> list[rounds.PairedComparison]:
        """The rounds of each candidate that was tested, as far as they count."""
        return [one.comparison for one in self.candidates if one.comparison is not None]

    @property
    def costs(self) -> ColdCosts:
        """The highest start costs of the trials so far."""
        return ColdCosts(self.search.study.finished(), self.runs)

    @property
    def refuted(self) -> bool:
        """True if a trial that seemed faster beyond the noise was not confirmed."""
        lost = (one for one in self.candidates if one.state in (State.REFUSED, State.FAILED))
        return any(self.search.time_budget.is_candidate(one.trial) for one in lost)

    @property
    def undecided(self) -> list[Candidate]:
        """The candidates for which there was not enough time.

        One that the trials do not distinguish from a candidate that lost its rounds does not count.
        """
        refused = (one for one in self.candidates if one.state is State.REFUSED)
        beaten = [
            one.posterior
            for one in refused
            if one.comparison is not None and not one.comparison.is_faster
        ]
        return [
            one
            for one in self.candidates
            if one.state is State.UNDECIDED
            and all(posterior.is_clearly_below(one.posterior) for posterior in beaten)
        ]

    @property
    def _waiting(self) -> list[Candidate]:
        return [one for one in self.candidates if one.state is State.WAITING]

    @property
    def _tested(self) -> int:
        return sum(one.was_tested for one in self.candidates)

    def _until_won(self) -> Generator[events.Event, None, Confirmed | None]:
        most = self._tested + _MOST_TESTED
        while self._waiting and self._tested < most:
            if self.search.clock.is_over:
                yield from [one.end(State.UNDECIDED, TOO_LATE) for one in self._waiting]
                return None
            entrants = yield from self._entrants()
            if entrants:
                won = yield from self._race(entrants)
                if won is not None:
                    return won
        return None

    def _entrants(self) -> Generator[events.Event, None, list[Candidate]]:
        """Return the fastest candidates that are accurate enough, as many as there is time for.

        Seeds decide on those that lack them, where that costs least first.
        """
        seeds_seconds = self.search.time_budget.seeds_seconds
        while self._waiting and not self.search.clock.is_over:
            fastest = self._fastest()
            unknown = [one for one in fastest if not one.qualities]
            if not unknown:
                return fastest
            yield from self._validate(min(unknown, key=lambda one: seeds_seconds(one.trial)))
        return []

    def _fastest(self) -> list[Candidate]:
        """Return the first candidate, and others that are not clearly slower, if time is left."""
        budget, first = self.search.time_budget, self._waiting[0]
        needed = budget.rounds_seconds(first.trial) + budget.seeds_seconds(first.trial)
        spare = self.search.clock.left - needed - LIMITS_SECONDS
        further = spare / (_PROCESSES_MORE * max(budget.run_seconds(), 0.1))
        near = (one for one in self._waiting if not one.posterior.is_clearly_below(first.posterior))
        return list(near)[: 1 + int(min(max(further, 0.0), MOST_AT_ONCE - 1))]

    def _validate(self, one: Candidate) -> Iterator[events.Event]:
        """Judge the accuracy of a candidate; it ends unless it is accurate enough."""
        found = self._proof(one)
        if found == Lost(OUT_OF_TIME):
            yield one.end(State.UNDECIDED, TOO_LATE)
        elif not isinstance(found, AccuracyVerdict):
            yield one.end(State.FAILED, f"short training: {describe(found)}")
        elif found.decision == "accept":
            one.qualities = found.qualities
            one.seeds_to_loss = self.search.prober.seeds_to_loss(one.trial.config)
        elif not found.is_final and len(found.qualities) < INCUMBENT_SEEDS:
            yield one.end(State.UNDECIDED, _NO_TIME_FOR_SEEDS)
        else:
            yield one.end(State.REFUSED, found.reason)
            for other in self._waiting:
                if self.search.prober.speaks_against(other.trial.config):
                    other.state = State.DROPPED

    def _proof(self, one: Candidate) -> AccuracyVerdict | Failure:
        """Return the verdict on a candidate's accuracy, after as many seeds as there is time for.

        Seeds that leave no time for its rounds would only take time from others.
        """
        budget, prober = self.search.time_budget, self.search.prober
        found: AccuracyVerdict | Failure = AccuracyVerdict("undecided", 0.0, (), "")
        # Few seeds hardly tell the samples to a loss.
        least = INCUMBENT_SEEDS if self.search.context.objective.to_loss else len(SEEDS)
        for most in statistics.SEED_COUNTS:
            if len(prober.known(one.trial.config)) < most and not budget.fits(one.trial):
                break
            found = prober.verdict(one.trial.config, most, least_seeds=least)
            if not isinstance(found, AccuracyVerdict):
                break
            if found.is_final and (found.decision == "reject" or most >= least):
                break
        return found

    def _race(
        self, entrants: Sequence[Candidate]
    ) -> Generator[events.Event, None, Confirmed | None]:
        """Let candidates race until one has won or all have lost, or the time is up."""
        members = {one.participant: one for one in entrants}
        course = course_of(self.search, self.costs, entrants)
        taken: list[float] = []
        since = time.monotonic()
        for standing in race(course, list(members), self._tested + 1):
            taken.append(time.monotonic() - since)
            yield from _told(standing, members, _seconds_left(standing, taken))
            if standing.winner is not None:
                won = members[standing.winner]
                won.state = State.CONFIRMED
                comparison = standing.comparisons[standing.winner]
                return confirmed_by(comparison, won.trial, won.qualities)
            if self.search.clock.is_over and not self._may_finish(standing):
                if standing.is_test and standing.rounds >= ROUND_COUNTS[0]:
                    for one in map(members.__getitem__, standing.comparisons):
                        if one.state is State.WAITING:
                            yield one.end(State.REFUSED, _NOT_DECIDED)
                return None
            since = time.monotonic()
        return None

    def _may_finish(self, standing: Standing) -> bool:
        """Return whether a candidate that can win at the next test may have it past the budget.

        Its rounds would be lost otherwise, and the user has to wait for all of them again.
        """
        budget = self.search.context.time_budget_seconds or math.inf
        if not standing.is_test or self.search.clock.elapsed > (1 + OVERTIME) * budget:
            return False
        coming = next((count for count in ROUND_COUNTS if count > standing.rounds), None)
        return standing.rounds == 0 or (
            coming is not None
            and all(comparison.would_win(coming) for comparison in standing.comparisons.values())
        )


def _told(
    standing: Standing, members: Mapping[rounds.Participant, Candidate], seconds_left: float
) -> Iterator[events.Event]:
    """Note the state of a race in its candidates, and yield the events of the round."""
    for one in map(members.__getitem__, (*standing.comparisons, *standing.failed)):
        one.was_tested |= standing.is_test
        one.set_aside_for = None
    if standing.void:
        yield events.RoundVoid(standing.rounds + 1, standing.void, seconds_left)
    else:
        for participant, comparison in standing.comparisons.items():
            if standing.is_test:
                members[participant].comparison = comparison
            yield events.RoundEnded(
                participant.config,
                comparison.ratios,
                comparison.interval,
                seconds_left,
                comparison.disturbed,
            )
            if standing.beaten:
                yield members[participant].end(State.REFUSED, standing.beaten)
    for participant, reason in standing.failed.items():
        yield members[participant].end(State.FAILED, reason)
    for participant, other in standing.slower.items():
        members[participant].set_aside_for = members[other].trial.number
        yield events.CandidateSetAside(members[participant].trial, members[other].trial)


def _seconds_left(standing: Standing, taken: Sequence[float]) -> float:
    """Estimate the seconds until best.yaml is written, if the next test decides."""
    if standing.is_test:
        coming = next((count for count in ROUND_COUNTS if count > standing.rounds), standing.rounds)
        missing = 0 if standing.winner else coming - standing.rounds
    else:
        missing = max(0, len(standing.comparisons) + 1 - standing.rounds) + ROUND_COUNTS[0]
    return missing * median(taken) + LIMITS_SECONDS


def candidates(search: SearchRun, costs: ColdCosts) -> list[Candidate]:
    """Return the feasible trials with a posterior above the baseline's, the fastest first.

    Trials that were stopped early or too slow to be probed are included, because the faster ones
    may be refused. Trials that probes show to be less accurate are not.
    """
    measured = [
        (trial, run)
        for trial in search.study.finished()
        if (run := trial.details.measurement) is not None
    ]
    feasible = [
        trial
        for trial, _ in measured[1:]
        if trial.verdict.feasible and not search.prober.speaks_against(trial.config)
    ]
    if not feasible:
        return []

    def worth(trial: FinishedTrial, run: Measurement) -> float:
        """Two trials that compile the same code are charged alike, whichever came first."""
        rate = run.samples_per_second / run.machine_speed
        fixed = costs.fixed_seconds(trial.config, run)
        return search.objective_of(trial.config).worth(rate, fixed)

    encoding = Encoding(search.context.space)
    seen = Observations(
        encoding.rows([trial.config for trial, _ in measured]),
        np.array([worth(trial, run) for trial, run in measured]),
        [trial.verdict.feasible for trial, _ in measured],
        [False] * len(measured),
        np.full(len(measured), np.nan),
    )
    rows = encoding.rows([search.baseline.config, *(trial.config for trial in feasible)])
    own, *posteriors = Acquisition(encoding, seen).posteriors(rows)
    found = (
        Candidate(t, b) for t, b in zip(feasible, posteriors, strict=True) if b.mean > own.mean
    )
    return sorted(found, key=lambda one: -one.posterior.mean)


def course_of(search: SearchRun, costs: ColdCosts, entrants: Sequence[Candidate]) -> rounds.Course:
    """Return the setup of rounds, with the objective and the limits of the search."""
    context = search.context

    def time(
        config: TrainingConfig, folder: Path, conditions: rounds.Conditions
    ) -> Measurement | Failure:
        job = context.job(Measure(conditions.plan), config)
        job = replace(job, host=conditions.host, seed=conditions.seed)
        run = rounds.time_in_round(search.runner, job, folder)
        return search.comparable(run) if isinstance(run, Measurement) else run

    def worth(config: TrainingConfig, run: Measurement) -> float:
        fixed = costs.fixed_seconds(config, run)
        return context.objective.worth(run.samples_per_second, fixed)

    return rounds.Course(
        time=time,
        worth=worth,
        baseline=rounds.Participant("baseline", context.baseline),
        folder=search.folder("confirm", "-".join(f"{one.trial.number:04d}" for one in entrants)),
        seed=context.options.sampling.seed,
        memory_limit_bytes=context.memory_limit_bytes,
        host_seconds=context.host_seconds,
        may_repeat=lambda: not search.clock.is_over,
        plan=replace(rounds.PLAN, least_samples=least_samples(search)),
    )
