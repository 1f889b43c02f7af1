"""The end of a search: confirm the fastest candidates, and write best.yaml."""

from __future__ import annotations

import time
from collections.abc import Container, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TypeVar

from autotune.accuracy.probes import AccuracyVerdict
from autotune.comparison.rounds import TASK, Course, Participant, time_in_round
from autotune.comparison.sequential_test import Standing, looks, sequential_test
from autotune.configuration.best_config import BestConfig, write_best
from autotune.configuration.training_config import TrainingConfig
from autotune.context.time_budget import OUT_OF_TIME
from autotune.searching.confirmation.best_so_far import forget_so_far
from autotune.searching.confirmation.candidates import Candidate, candidates, contenders
from autotune.searching.confirmation.compile_costs import ColdCosts
from autotune.searching.confirmation.confirmation_log import kept
from autotune.searching.confirmation.re_timing import ReTiming
from autotune.searching.confirmation.result import (
    Confirmed,
    build_answer,
    confirmed_by,
    keep_baseline,
)
from autotune.searching.run.confirmation_time import LIMITS_SECONDS
from autotune.searching.run.enough_trials import check_enough
from autotune.searching.run.events import (
    Answered,
    CandidateRefused,
    CandidateSetAside,
    Event,
    RoundEnded,
    RoundVoid,
)
from autotune.searching.run.search_run import Accuracy, SearchRun
from autotune.storage.facts import Answer
from autotune.study.study import FinishedTrial
from autotune.values.errors import StorageError
from autotune.values.measurement import Measurement
from autotune.values.outcome import Failure, Lost, describe

T = TypeVar("T")
# Processes that each further candidate adds to a sequential test.
_PROCESSES_MORE = 5
_MOST_AT_ONCE = 3
# Most candidates tested in all, because intervals widen with their number. A candidate that was
# set aside may be tested again.
_MOST_TESTED = 4
_TOO_LATE = "the time budget ended before it was confirmed"
_NOT_DECIDED = "the time budget ended before the rounds decided"

Held = dict[int, tuple[FinishedTrial, tuple[float, ...]]]
"""Trials that are accurate enough, by number: the trial and its qualities, one per seed."""


@dataclass
class _Disturbed:
    """Numbers of disturbed rounds in all tests so far."""

    counted: int | None = None
    """Disturbed rounds that count all the same; None without rounds, or if not known."""
    repeated: int = 0
    """Disturbed rounds that were void and repeated."""


def conclude(
    search: SearchRun, runs: tuple[Measurement, ...], accuracy: Accuracy, *, cut_short: bool
) -> Iterator[Event]:
    """Confirm the fastest candidate that passes, or keep the baseline; write best.yaml.

    Args:
        search: the search, with its trials done.
        runs: the baseline's processes.
        accuracy: the accuracy judgement.
        cut_short: whether the trials ended for lack of time.

    Raises:
        NotSearchedEnoughError: too little was measured to say that nothing is faster.
    """
    costs = ColdCosts(search.study.finished(), runs)
    undecided: list[FinishedTrial] = []
    disturbed = _Disturbed()
    found = kept(search.study, _find(search, accuracy, costs, disturbed))
    won = yield from _noting_undecided(found, undecided)
    if won is None:
        check_enough(search, undecided, cut_short=cut_short)
        won = keep_baseline(search.baseline, runs, accuracy.rule.baseline)
        rounds = {"disturbed_rounds": disturbed.counted, "repeated_rounds": disturbed.repeated}
        won = replace(won, speedup=won.speedup.model_copy(update=rounds))
    best = build_answer(accuracy.prober, costs, won)
    search.study.notes.answer = Answer(len(search.study.finished()), best)
    yield emit(search, best)


def known_answer(search: SearchRun) -> BestConfig | None:
    """Return the result of an earlier run; None if trials came after it or are still to come."""
    answer = search.study.notes.answer
    if answer is None or answer.trials != len(search.study.finished()):
        return None
    return None if search.end_reason() is None else answer.best


def emit(search: SearchRun, best: BestConfig) -> Answered:
    """Write best.yaml and remove best-so-far.yaml.

    Raises:
        StorageError: the file cannot be written; the study keeps the result.
    """
    out = search.context.options.out
    try:
        write_best(best, out)
    except OSError as error:
        raise StorageError(
            f"{out} cannot be written: {error.strerror}. The study keeps the answer: free some "
            "space or choose another --out, and run the same command again."
        ) from error
    forget_so_far(search.context.options)
    return Answered(best, out)


def _noting_undecided(
    found: Generator[Event, None, T], undecided: list[FinishedTrial]
) -> Generator[Event, None, T]:
    """Pass on events and result; add trials that were not confirmed in time to `undecided`."""
    while True:
        try:
            event = next(found)
        except StopIteration as end:
            result: T = end.value
            return result
        if isinstance(event, CandidateRefused) and (
            event.reason == _TOO_LATE or OUT_OF_TIME in event.reason
        ):
            undecided.append(event.trial)
        yield event


def _find(
    search: SearchRun, accuracy: Accuracy, costs: ColdCosts, disturbed: _Disturbed
) -> Generator[Event, None, Confirmed | None]:
    """Confirm group after group of candidates; return the first winner, or None without one."""
    pool = candidates(search, accuracy, costs)
    tested: set[int] = set()
    re_timing = ReTiming(search, costs)
    while pool:
        if search.over_budget():
            yield CandidateRefused(pool[0].trial, _TOO_LATE)
            break
        pool = yield from _led_by_accurate(search, accuracy, pool)
        pool, later = _in_time(search, accuracy, pool)
        pool = yield from re_timing.play(pool)
        group = contenders(pool)[: _affordable(search)]
        held = yield from _hold_accuracy(accuracy, [one.trial for one in group])
        tested |= held.keys()
        aside: Container[int] = ()
        if held:
            posteriors = {
                _participant(c.trial): c.posterior for c in group if c.trial.number in held
            }
            those = [_participant(trial) for trial, _ in held.values()]
            standings = sequential_test(
                _course(search, costs, list(held)), those, len(tested), posteriors
            )
            noted = _counting(standings, disturbed)
            won, aside = yield from _test(search, held, noted, len(tested))
            if won is not None:
                return won
        left = [one for one in group if one.trial.number in aside]
        if len(tested) < _MOST_TESTED:
            left = [one for one in pool if one in left or one not in group] + later
        pool = _hopeful(left, accuracy)
    return None


def _led_by_accurate(
    search: SearchRun, accuracy: Accuracy, pool: list[Candidate]
) -> Generator[Event, None, list[Candidate]]:
    """Refuse candidates at the head of the pool that are not accurate enough; return the others.

    Re-timing inaccurate candidates would take its seconds from the others.
    """
    while True:
        group = contenders(pool)[: _affordable(search)]
        held = yield from _hold_accuracy(accuracy, [one.trial for one in group])
        refused = [one for one in group if one.trial.number not in held]
        pool = _hopeful([one for one in pool if one not in refused], accuracy)
        if not refused or search.over_budget():
            return pool


def _in_time(
    search: SearchRun, accuracy: Accuracy, pool: list[Candidate]
) -> tuple[list[Candidate], list[Candidate]]:
    """Split candidates into those to confirm within the remaining budget and fallbacks.

    When little time is left, the first candidate and those that need no further seeds are to be
    confirmed. Once the budget is spent, only the latter are, if there are any.
    """
    if search.seconds_left() > 0:
        return pool, []
    validated = [one for one in pool if accuracy.prober.is_validated(one.trial.config)]
    first = [] if validated and search.over_budget() else pool[:1]
    now = [one for one in pool if one in (*first, *validated)]
    return now, [one for one in pool if one not in now]


def _hopeful(pool: Sequence[Candidate], accuracy: Accuracy) -> list[Candidate]:
    """Return the pool without candidates that known seeds show to be less accurate."""
    return [one for one in pool if not accuracy.prober.speaks_against(one.trial.config)]


def _affordable(search: SearchRun) -> int:
    """Return the number of candidates, 1 to 3, that there is time to test together."""
    spare = search.seconds_left() / (
        _PROCESSES_MORE * max(search.confirmation_time.run_seconds(), 0.1)
    )
    return 1 + int(min(max(spare, 0.0), _MOST_AT_ONCE - 1))


def _hold_accuracy(
    accuracy: Accuracy, trials: Sequence[FinishedTrial]
) -> Generator[Event, None, Held]:
    """Validate the accuracy of the trials; return those that are accurate enough."""
    held: Held = {}
    for trial in trials:
        found = accuracy.prober.proof(trial.config)
        if found == Lost(OUT_OF_TIME):
            yield CandidateRefused(trial, _TOO_LATE)
        elif not isinstance(found, AccuracyVerdict):
            yield CandidateRefused(trial, f"accuracy probe: {describe(found)}")
        elif found.decision != "accept":
            yield CandidateRefused(trial, found.reason)
        else:
            held[trial.number] = (trial, found.qualities)
    return held


def _test(
    search: SearchRun, held: Held, standings: Iterator[Standing], family: int
) -> Generator[Event, None, tuple[Confirmed | None, set[int]]]:
    """Follow the sequential test of these candidates.

    Returns:
        The winner, or None; and the numbers of the trials that were set aside and may be tested
        again.
    """
    numbers = {_participant(trial): number for number, (trial, _) in held.items()}
    trials = {participant: held[number][0] for participant, number in numbers.items()}
    aside: set[int] = set()
    taken: list[float] = []
    since = time.monotonic()
    for standing in standings:
        taken.append(time.monotonic() - since)
        yield from _told(standing, trials, _seconds_left(standing, taken, family))
        aside |= {numbers[one] for one in standing.set_aside}
        if standing.winner is not None:
            trial, qualities = held[numbers[standing.winner]]
            return confirmed_by(standing.comparisons[standing.winner], trial, qualities), set()
        if search.over_budget():
            decided = standing.rounds >= looks(family)[0]
            left = standing.comparisons.keys() - standing.refused.keys() - standing.set_aside.keys()
            for one in left:
                yield CandidateRefused(trials[one], _NOT_DECIDED if decided else _TOO_LATE)
            break
        since = time.monotonic()
    return None, aside


def _counting(standings: Iterator[Standing], found: _Disturbed) -> Iterator[Standing]:
    """Pass on the states of a test, and add its disturbed rounds to `found`."""
    before = found.counted or 0
    for standing in standings:
        found.repeated += bool(standing.void)
        known = [d.disturbed for d in standing.comparisons.values() if d.disturbed is not None]
        if known:
            found.counted = max(found.counted or 0, before + max(known))
        yield standing


def _seconds_left(standing: Standing, taken: Sequence[float], family: int) -> float:
    """Estimate the seconds until best.yaml is written, if the next look decides."""
    coming = [look for look in looks(family) if look > standing.rounds]
    rounds = coming[0] - standing.rounds if coming and standing.winner is None else 0
    return rounds * median(taken) + LIMITS_SECONDS


def _told(
    standing: Standing, trials: Mapping[Participant, FinishedTrial], seconds_left: float
) -> Iterator[Event]:
    """Yield the events of a round."""
    if standing.void:
        yield RoundVoid(standing.rounds + 1, standing.void, seconds_left)
    else:
        for one, comparison in standing.comparisons.items():
            yield RoundEnded(
                one.config,
                comparison.ratios,
                comparison.interval,
                seconds_left,
                comparison.disturbed,
            )
    for one, reason in standing.refused.items():
        yield CandidateRefused(trials[one], reason)
    for one, other in standing.set_aside.items():
        yield CandidateSetAside(trials[one], trials[other])


def _course(search: SearchRun, costs: ColdCosts, numbers: Sequence[int]) -> Course:
    """Return the setup of rounds, with the objective and the limits of the search."""
    context = search.context

    def time(config: TrainingConfig, folder: Path, host: str | None) -> Measurement | Failure:
        job = replace(context.job(TASK, config), host=host)
        run = time_in_round(search.runner, job, folder)
        return search.comparable(run) if isinstance(run, Measurement) else run

    def worth(config: TrainingConfig, run: Measurement) -> float:
        fixed = costs.fixed_seconds(config, run)
        return context.objective.worth(run.samples_per_second, fixed)

    return Course(
        time=time,
        worth=worth,
        baseline=Participant("baseline", context.baseline),
        folder=search.folder("confirm", "-".join(f"{number:04d}" for number in numbers)),
        seed=context.options.seed,
        memory_limit_bytes=context.memory_limit_bytes,
        host_seconds=context.host_seconds,
        may_repeat=lambda: not search.over_budget(),
    )


def _participant(trial: FinishedTrial) -> Participant:
    return Participant(f"trial{trial.number:04d}", trial.config)
