"""The confirmation: one candidate after the other races against the baseline, until one has won."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Literal

import numpy as np

from autotune.accuracy.accuracy_verdict import INCUMBENT_SEEDS, SEEDS, AccuracyVerdict
from autotune.comparison import rounds
from autotune.comparison.race import ROUND_COUNTS, Standing, race, settings_to_change
from autotune.configuration.job import Measure, MeasurePlan
from autotune.configuration.training_config import TrainingConfig
from autotune.process.stop import OUT_OF_TIME
from autotune.sampling.acquisition import Acquisition, Observations, Posterior
from autotune.sampling.encoding import Encoding
from autotune.searching.confirmation.result import ColdCosts, Confirmed, confirmed_by, gain_of
from autotune.searching.run import events
from autotune.searching.run.search_run import SearchRun
from autotune.searching.run.time_budget import LIMITS_SECONDS, OVERTIME
from autotune.searching.trials.trials import least_samples
from autotune.study.facts import CandidateLog, Confirmation, FinishedTrial
from autotune.values import statistics
from autotune.values.measurement import Measurement
from autotune.values.outcome import Failure, Lost, describe
from autotune.values.text import as_file_name, readable

TOO_LATE = "the time budget ended before it was confirmed"
"""Reason for a candidate that there was no time to test."""
_NOT_DECIDED = "the time budget ended before the rounds decided"
_NO_TIME_FOR_SEEDS = "the time left is too short for its short trainings and rounds"
# Most candidates tested in one run, because intervals widen with their number.
_MOST_TESTED = 4
# Candidates that differ by no more than this, as a logarithm, are equally fast.
_AS_FAST = 0.01
MOST_WITHOUT = 2
"""Most configurations in a race that lack settings of its candidate."""
# Settings that gain less by the trials, as a logarithm, are left out together.
_SMALL = 0.03
State = Literal["waiting", "refused", "failed", "undecided", "dropped", "confirmed"]
"""State of a candidate: it may still race; it is not accurate enough, or its rounds did not show
that it is faster; it could not be probed or timed; the time was up before it had enough rounds; it
is not tested, since known seeds show it to be less accurate; or it is the result."""


@dataclass(eq=False)
class Candidate:
    """A trial that may become the result, with the posterior of its worth from all trials."""

    trial: FinishedTrial
    posterior: Posterior
    state: State = "waiting"
    was_tested: bool = False
    qualities: tuple[float, ...] = ()
    """Quality per accuracy seed; empty until it is known to be accurate enough."""
    seeds_to_loss: tuple[statistics.Part, ...] = ()
    """Samples to the loss that is the objective, the baseline's first, a pair per seed."""
    comparison: rounds.PairedComparison | None = None
    """Its rounds of a test; None without any."""
    reason: str = ""
    """Reason why it was refused, failed or is undecided."""

    @property
    def participant(self) -> rounds.Participant:
        """The candidate in rounds."""
        name = f"trial{self.trial.number:04d}"
        return rounds.Participant(name, self.trial.config, self.seeds_to_loss)

    def end(self, state: State, reason: str) -> events.CandidateRefused:
        """End in this state, or as undecided if that was for lack of time."""
        self.state = "undecided" if OUT_OF_TIME in reason else state
        self.reason = reason
        return events.CandidateRefused(self.trial, reason)

    def log(self) -> CandidateLog | None:
        """Return what became of it, for later readers; None if it was neither tested nor refused.

        A discarded round leaves no ratio.
        """
        log = CandidateLog(refused=self.reason or None)
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
    """All candidates, in the order in which they race."""
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
        return [*found, *(one for one in known.values() if one.state != "waiting")]

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
        lost = (one for one in self.candidates if one.state in ("refused", "failed"))
        return any(self.search.time_budget.is_candidate(one.trial) for one in lost)

    @property
    def undecided(self) -> list[Candidate]:
        """The candidates for which there was not enough time.

        One that the trials do not distinguish from a candidate that lost its rounds does not count.
        """
        refused = (one for one in self.candidates if one.state == "refused")
        beaten = [
            one.posterior
            for one in refused
            if one.comparison is not None and not one.comparison.is_faster
        ]
        return [
            one
            for one in self.candidates
            if one.state == "undecided"
            and all(posterior.is_clearly_below(one.posterior) for posterior in beaten)
        ]

    @property
    def _waiting(self) -> list[Candidate]:
        return [one for one in self.candidates if one.state == "waiting"]

    @property
    def _tested(self) -> int:
        return sum(one.was_tested for one in self.candidates)

    def _until_won(self) -> Generator[events.Event, None, Confirmed | None]:
        most = self._tested + _MOST_TESTED
        while self._waiting and self._tested < most:
            if self.search.clock.is_over:
                yield from [one.end("undecided", TOO_LATE) for one in self._waiting]
                return None
            first = self._waiting[0]
            yield from self._validate(first)
            if first.state == "waiting":
                won = yield from self._race(first)
                if won is not None:
                    return won
        return None

    def _validate(self, one: Candidate) -> Iterator[events.Event]:
        """Judge the accuracy of a candidate; it ends unless it is accurate enough."""
        found = self._proof(one)
        if found == Lost(OUT_OF_TIME):
            yield one.end("undecided", TOO_LATE)
        elif not isinstance(found, AccuracyVerdict):
            yield one.end("failed", f"short training: {describe(found)}")
        elif found.decision == "accept":
            # The first seed helped to choose it, and set the loss: it is no evidence.
            prober = self.search.prober
            one.seeds_to_loss = prober.seeds_to_loss(one.trial.config)[1:]
            needs = self.search.context.objective.to_loss and prober.needs_probe(one.trial.config)
            if needs and len(one.seeds_to_loss) < INCUMBENT_SEEDS - 1:
                yield one.end("undecided", _NO_TIME_FOR_SEEDS)
            else:
                one.qualities = found.qualities
        elif not found.is_final and len(found.qualities) < INCUMBENT_SEEDS:
            yield one.end("undecided", _NO_TIME_FOR_SEEDS)
        else:
            yield one.end("refused", found.reason)
            for other in self._waiting:
                if self.search.prober.speaks_against(other.trial.config):
                    other.state = "dropped"

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

    def _race(self, one: Candidate) -> Generator[events.Event, None, Confirmed | None]:
        """Race a candidate until it has won or lost, or the time is up."""
        course, lacking = course_of(self.search, self.costs, one), self._lacking(one)
        taken: list[float] = []
        since = time.monotonic()
        for standing in race(course, one.participant, self._tested + 1, lacking):
            taken.append(time.monotonic() - since)
            yield from _told(standing, one, _seconds_left(standing, taken))
            if standing.has_won:
                return self._confirmed(one, standing)
            if self.search.clock.is_over and not self._may_finish(standing):
                if standing.rounds >= ROUND_COUNTS[0] and one.state == "waiting":
                    yield one.end("refused", _NOT_DECIDED)
                return None
            since = time.monotonic()
        return None

    def _lacking(self, one: Candidate) -> list[rounds.Participant]:
        """Return configurations that lack settings of a candidate, as many as there is time for.

        Those that gain little by the trials are left out together. The others are one by one, those
        that promise least first. A single setting gives what the whole candidate gains. Seeds, not
        rounds, tell how fast a loss is reached.
        """
        changed = settings_to_change(one.trial.config, self.search.context.baseline)
        each = {name: self._less(one, [name]) for name in changed}
        single = {name: less for name, less in each.items() if less.config != one.trial.config}
        if len(single) < 2 or self.search.context.objective.to_loss:  # noqa: PLR2004
            return []
        configs = [one.trial.config, *(lacking.config for lacking in single.values())]
        whole, *others = posteriors_of(self.search, self.costs, configs)
        gains = {name: whole.mean - other.mean for name, other in zip(single, others, strict=True)}
        ranked = sorted(gains, key=lambda name: gains[name])
        small = [name for name in ranked[:-1] if gains[name] < _SMALL]
        found = [self._less(one, small)] if small else []
        found += [single[name] for name in ranked if name not in small]
        found = found[:MOST_WITHOUT]
        budget = self.search.time_budget
        left = self.search.clock.left - LIMITS_SECONDS - budget.rounds_seconds(one.trial)
        ends = accumulate(budget.seconds_without(one.trial, lacking.config) for lacking in found)
        return [lacking for lacking, end in zip(found, ends, strict=True) if end <= left]

    def _less(self, one: Candidate, names: Sequence[str]) -> rounds.Participant:
        """Return a candidate with the user's values of some settings."""
        context = self.search.context
        own = {name: context.baseline[name] for name in names}
        config = context.space.config({**one.trial.config.as_dict(), **own})
        name = as_file_name(f"{one.participant.name}-without-{'-'.join(names)}")
        return rounds.Participant(name, config)

    def _confirmed(self, won: Candidate, standing: Standing) -> Confirmed:
        """Return the result: the winner, or it without settings that do not pay.

        The latter has to be as accurate. The same rounds show that it, too, beats the baseline.
        """
        won.state, tried = "confirmed", dict(standing.without)
        trial, qualities, taken_back = won.trial, won.qualities, None
        comparison = won.comparison
        own = self.search.context.baseline
        enough = (one for one, without in standing.without.items() if without.is_enough)
        for one in sorted(enough, key=lambda one: len(settings_to_change(one.config, own))):
            less = replace(won.trial, config=one.config)
            found = self._proof(Candidate(less, won.posterior))
            if isinstance(found, AccuracyVerdict) and found.decision == "accept":
                trial, qualities, comparison = less, found.qualities, tried[one].own
                taken_back = gain_of(won.participant, one, tried.pop(one))
                break
        assert comparison is not None, "it was tested"
        timed = [one for one, without in tried.items() if without.gain.costs and not without.fault]
        gains = [gain_of(won.participant, one, tried[one]) for one in timed]
        result = confirmed_by(comparison, trial, qualities)
        gains.sort(key=lambda gain: -gain.ratio)
        return replace(result, gains=tuple(gains), taken_back=taken_back)

    def _may_finish(self, standing: Standing) -> bool:
        """Return whether a candidate that can win at the next test may have it past the budget.

        Its rounds would be lost otherwise, and the user has to wait for all of them again.
        """
        budget = self.search.context.time_budget_seconds or math.inf
        if self.search.clock.elapsed > (1 + OVERTIME) * budget:
            return False
        coming = next((count for count in ROUND_COUNTS if count > standing.rounds), None)
        return standing.rounds == 0 or (
            coming is not None and standing.comparison.would_win(coming)
        )


def _told(standing: Standing, one: Candidate, seconds_left: float) -> Iterator[events.Event]:
    """Note the state of a race in its candidate, and yield the events of the round."""
    one.was_tested = True
    if standing.fault:
        yield one.end("failed", standing.fault)
    elif standing.void:
        yield events.RoundVoid(standing.rounds + 1, standing.void, seconds_left)
    else:
        one.comparison = found = standing.comparison
        yield events.RoundEnded(
            one.trial.config, found.ratios, found.interval, seconds_left, found.disturbed
        )
        if standing.beaten:
            yield one.end("refused", standing.beaten)


def _seconds_left(standing: Standing, taken: Sequence[float]) -> float:
    """Estimate the seconds until best.yaml is written, if the next test decides."""
    coming = next((count for count in ROUND_COUNTS if count > standing.rounds), standing.rounds)
    missing = 0 if standing.has_won else coming - standing.rounds
    return missing * median(taken) + LIMITS_SECONDS


def candidates(search: SearchRun, costs: ColdCosts) -> list[Candidate]:
    """Return the feasible trials with a posterior above the baseline's, in the order to race.

    The fastest comes first; of some that are about as fast, the one with the fewest changes. Trials
    that were stopped early or too slow to be probed are included, because the faster ones may be
    refused. Trials that probes show to be less accurate are not.
    """
    feasible = [
        trial
        for trial in search.study.finished()[1:]
        if trial.details.measurement is not None
        and trial.verdict.feasible
        and not search.prober.speaks_against(trial.config)
    ]
    if not feasible:
        return []
    configs = [search.baseline.config, *(trial.config for trial in feasible)]
    own, *posteriors = posteriors_of(search, costs, configs)
    found = [
        Candidate(t, b) for t, b in zip(feasible, posteriors, strict=True) if b.mean > own.mean
    ]
    most = max(one.mean for one in posteriors)

    def place(one: Candidate) -> tuple[float, float]:
        changes = len(settings_to_change(one.trial.config, search.baseline.config))
        is_tied = one.posterior.mean >= most - _AS_FAST
        return changes if is_tied else math.inf, -one.posterior.mean

    return sorted(found, key=place)


def posteriors_of(
    search: SearchRun, costs: ColdCosts, configs: Sequence[TrainingConfig]
) -> list[Posterior]:
    """Return the posterior of the log worth of each configuration, from all measured trials."""
    measured = [
        (trial, run)
        for trial in search.study.finished()
        if (run := trial.details.measurement) is not None
    ]

    def worth(trial: FinishedTrial, run: Measurement) -> float:
        """Two trials that compile the same code are charged alike, whichever came first."""
        rate = run.samples_per_second / run.machine_speed
        fixed = costs.fixed_seconds(trial.config, run)
        return search.objective_of(trial.config).worth(rate, fixed)

    encoding = Encoding(search.context.space)
    seen = Observations(
        encoding.rows([trial.config for trial, _ in measured]),
        np.array([worth(trial, run) for trial, run in measured]),
        np.array([trial.verdict.feasible for trial, _ in measured], dtype=bool),
        np.zeros(len(measured), dtype=bool),
        np.full(len(measured), np.nan),
    )
    return Acquisition(encoding, seen).posteriors(encoding.rows(configs))


def course_of(search: SearchRun, costs: ColdCosts, one: Candidate) -> rounds.Course:
    """Return the setup of rounds, with the objective and the limits of the search."""
    context = search.context

    def time(
        config: TrainingConfig, folder: Path, plan: MeasurePlan, host: str | None, seed: int
    ) -> Measurement | Failure:
        job = replace(context.job(Measure(plan), config), host=host, seed=seed)
        run = rounds.time_in_round(search.runner, job, folder)
        return search.comparable(run) if isinstance(run, Measurement) else run

    def worth(config: TrainingConfig, run: Measurement) -> float:
        fixed = costs.fixed_seconds(config, run)
        return context.objective.worth(run.samples_per_second, fixed)

    return rounds.Course(
        time=time,
        worth=worth,
        baseline=rounds.Participant("baseline", context.baseline),
        folder=search.folder("confirm", f"{one.trial.number:04d}"),
        seed=context.options.sampling.seed,
        memory_limit_bytes=context.memory_limit_bytes,
        host_seconds=context.host_seconds,
        may_repeat=lambda: not search.clock.is_over,
        plan=replace(rounds.PLAN, least_samples=least_samples(search)),
    )
