"""The confirmation: the fastest candidates are timed against the baseline until one has won."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from autotune.accuracy.accuracy_verdict import INCUMBENT_SEEDS, AccuracyVerdict
from autotune.comparison import sequential_test
from autotune.comparison.sequential_test import Standing
from autotune.context.budget_clock import OUT_OF_TIME
from autotune.process.devices import neighbours, shared_line
from autotune.searching.confirmation.candidates import (
    Candidate,
    State,
    candidates,
    choose_by_rounds,
    contenders,
    course_of,
)
from autotune.searching.confirmation.re_timing import ReTiming
from autotune.searching.confirmation.result import ColdCosts, Confirmed
from autotune.searching.run.events import Event, RoundVoid, Warned
from autotune.searching.run.search_run import Accuracy, SearchRun
from autotune.searching.run.time_budget import LIMITS_SECONDS, OVERTIME
from autotune.searching.trials.drift import note_rounds
from autotune.study.facts import Confirmation
from autotune.values.measurement import Measurement
from autotune.values.outcome import Failure, Lost, describe
from autotune.values.statistics import LOOKS
from autotune.values.text import readable

# Processes that each further candidate adds, in rounds that choose.
_PROCESSES_MORE = 9
_MOST_AT_ONCE = 3
# Most candidates tested in all, because intervals widen with their number. Choosing is no test.
_MOST_TESTED = 4
_NOT_DECIDED = "the time budget ended before the rounds decided"
_NO_TIME_FOR_SEEDS = "the time left is too short for its accuracy and its rounds"


@dataclass
class ConfirmationRun:
    """One confirmation: its candidates, and the tests that they go through."""

    search: SearchRun
    accuracy: Accuracy
    costs: ColdCosts
    candidates: list[Candidate] = field(default_factory=list)
    """All candidates; those that wait are in the order in which to test them."""
    disturbed_rounds: int | None = None
    """Disturbed rounds of tests that count all the same; None without rounds, or if not known."""
    repeated_rounds: int = 0
    """Disturbed rounds that were void and repeated."""
    baseline_runs: tuple[Measurement, ...] = ()
    """The baseline's processes of all rounds that count."""
    others: dict[str, list[str]] = field(default_factory=dict)
    """Other processes on the GPU that were warned of."""

    def run(self) -> Generator[Event, None, Confirmed | None]:
        """Test group after group of candidates; return the first winner, or None without one.

        What became of each candidate is noted in the study at the end.
        """
        start = time.monotonic()
        self.candidates = candidates(self.search, self.accuracy, self.costs)
        won = yield from self._until_won()
        log = {one.trial.number: log for one in self.candidates if (log := one.log()) is not None}
        seconds = round(time.monotonic() - start, 1)
        self.search.study.notes.confirmation = Confirmation(seconds, log, self._baseline_rates)
        return won

    @property
    def _baseline_rates(self) -> tuple[float, ...]:
        return tuple(readable(run.samples_per_second) for run in self.baseline_runs)

    @property
    def undecided(self) -> list[Candidate]:
        """The candidates for which there was not enough time.

        One that the trials do not tell apart from a candidate that lost its rounds does not count.
        """
        beaten = [one.posterior for one in self.candidates if one.is_beaten]
        return [
            one
            for one in self.candidates
            if one.state is State.UNDECIDED
            and all(posterior.is_clearly_below(one.posterior) for posterior in beaten)
        ]

    @property
    def failed(self) -> list[Candidate]:
        """The candidates that could not be probed or timed again."""
        return [one for one in self.candidates if one.state is State.FAILED]

    @property
    def _waiting(self) -> list[Candidate]:
        return [one for one in self.candidates if one.state is State.WAITING]

    def _until_won(self) -> Generator[Event, None, Confirmed | None]:
        re_timing = ReTiming(self.search, self.costs)
        while self._waiting:
            if self.search.clock.is_over:
                yield from [one.run_out() for one in self._waiting]
                return None
            yield from self._refuse_inaccurate()
            now, later = self._in_time()
            now = yield from re_timing.play(now)
            self._reorder([*now, *later])
            group = self._group(now)
            accurate = yield from self._validated(group)
            yield from self._warn_of_others()
            one = yield from choose_by_rounds(self.search, self.costs, accurate)
            won = (yield from self._test(one)) if one is not None else None
            if won is not None:
                return won
            note_rounds(self.search, self._baseline_rates)
            self._drop_after(group)
        return None

    def _refuse_inaccurate(self) -> Iterator[Event]:
        """Refuse candidates until those that would be tested next are accurate enough.

        Re-timing inaccurate candidates would take its seconds from the others.
        """
        while True:
            group = self._group(self._waiting)
            accurate = yield from self._validated(group)
            self._drop_less_accurate()
            if len(accurate) == len(group) or self.search.clock.is_over:
                return

    def _in_time(self) -> tuple[list[Candidate], list[Candidate]]:
        """Split the waiting candidates into those to confirm in the remaining time and others."""
        fits = self.search.time_budget.fits
        now = [one for one in self._waiting if fits(one.trial)]
        return now, [one for one in self._waiting if one not in now]

    def _reorder(self, waiting: Sequence[Candidate]) -> None:
        self.candidates = [*waiting, *(one for one in self.candidates if one not in waiting)]

    def _drop_after(self, group: Sequence[Candidate]) -> None:
        """Drop the others if enough were tested with this group, and those known to be worse."""
        if sum(one.was_tested for one in self.candidates) >= _MOST_TESTED:
            for one in self._waiting:
                if one not in group:
                    one.drop()
        self._drop_less_accurate()

    def _drop_less_accurate(self) -> None:
        for one in self._waiting:
            if self.accuracy.prober.speaks_against(one.trial.config):
                one.drop()

    def _group(self, waiting: Sequence[Candidate]) -> list[Candidate]:
        """Return the first of the candidates that there is time to test together, 1 to 3."""
        a_process = max(self.search.time_budget.run_seconds(), 0.1)
        spare = self.search.time_budget.seconds_left() / (_PROCESSES_MORE * a_process)
        return contenders(waiting)[: 1 + int(min(max(spare, 0.0), _MOST_AT_ONCE - 1))]

    def _validated(self, group: Sequence[Candidate]) -> Generator[Event, None, list[Candidate]]:
        """Validate the accuracy of candidates; refuse some, and return the others."""
        for one in group:
            found = self._proof(one)
            if found == Lost(OUT_OF_TIME):
                yield one.run_out()
            elif not isinstance(found, AccuracyVerdict):
                yield one.fail(f"accuracy probe: {describe(found)}")
            elif found.decision == "accept":
                one.qualities = found.qualities
            elif not found.is_final and len(found.qualities) < INCUMBENT_SEEDS:
                yield one.run_out(_NO_TIME_FOR_SEEDS)
            else:
                yield one.refuse(found.reason)
        return [one for one in group if one.state is State.WAITING]

    def _proof(self, one: Candidate) -> AccuracyVerdict | Failure:
        """Return the verdict on a candidate's accuracy, after as many seeds as there is time for.

        Seeds after which there is no time for its rounds would only take that of others.
        """
        budget, prober = self.search.time_budget, self.accuracy.prober
        found: AccuracyVerdict | Failure = AccuracyVerdict("undecided", 0.0, (), "")
        for most in LOOKS:
            if prober.known_seeds(one.trial.config) < most and not budget.fits(one.trial):
                break
            found = prober.proof(one.trial.config, most)
            if not isinstance(found, AccuracyVerdict) or found.is_final:
                break
        return found

    def _test(self, one: Candidate) -> Generator[Event, None, Confirmed | None]:
        """Test a candidate until it has won or lost, or the time is up."""
        one.enter_test()
        family = sum(other.was_tested for other in self.candidates)
        course = course_of(self.search, self.costs, [one])
        taken: list[float] = []
        since = time.monotonic()
        test = sequential_test.sequential_test(course, one.participant, family)
        for standing in self._watched(test):
            taken.append(time.monotonic() - since)
            yield from _told(standing, one, _seconds_left(standing, taken))
            if standing.is_won:
                return one.confirm()
            is_over = self.search.clock.is_over and not self._may_finish(standing)
            if is_over and one.state is State.IN_TEST:
                has_looked = standing.rounds >= sequential_test.LOOKS[0]
                yield one.refuse(_NOT_DECIDED) if has_looked else one.run_out()
            if is_over:
                return None
            since = time.monotonic()
        return None

    def _may_finish(self, standing: Standing) -> bool:
        """Return whether a candidate that can win at the next look may have it past the budget.

        Its rounds would be lost otherwise, and the user has to wait for all of them again.
        """
        budget = self.search.context.time_budget_seconds or math.inf
        is_late = self.search.clock.elapsed > (1 + OVERTIME) * budget
        coming = next((look for look in sequential_test.LOOKS if look > standing.rounds), None)
        can_win = standing.rounds == 0 or (
            coming is not None and standing.comparison.would_win(coming)
        )
        return not is_late and can_win

    def _warn_of_others(self) -> Iterator[Warned]:
        """Warn of other processes on the GPU, which may have come since the search began."""
        found = {
            device: neighbours(uuid, after_trials=True)
            for device, uuid in self.search.context.device_uuids.items()
        }
        for device, others in found.items():
            if others and others != self.others.get(device):
                yield Warned(shared_line(device, others))
        self.others = found

    def _watched(self, standings: Iterable[Standing]) -> Iterator[Standing]:
        """Pass on the states of a test; count its disturbed rounds, keep the baseline's runs."""
        before, earlier = self.disturbed_rounds or 0, self.baseline_runs
        for standing in standings:
            self.baseline_runs = (*earlier, *standing.comparison.baseline)
            self.repeated_rounds += bool(standing.void)
            known = standing.comparison.disturbed
            if known is not None and standing.rounds:
                self.disturbed_rounds = before + known
            yield standing


def _told(standing: Standing, one: Candidate, seconds_left: float) -> Iterator[Event]:
    """Note the state of a test in its candidate, and yield the events of the round."""
    if standing.void:
        yield RoundVoid(standing.rounds + 1, standing.void, seconds_left)
    elif not standing.failed:
        yield one.add_round(standing.comparison, seconds_left)
    if standing.failed:
        yield one.fail(standing.failed)
    elif standing.beaten:
        yield one.refuse(standing.beaten)


def _seconds_left(standing: Standing, taken: Sequence[float]) -> float:
    """Estimate the seconds until best.yaml is written, if the next look decides."""
    coming = [look for look in sequential_test.LOOKS if look > standing.rounds]
    rounds = coming[0] - standing.rounds if coming and not standing.is_won else 0
    return rounds * median(taken) + LIMITS_SECONDS
