"""The end of a search: hold the fastest trials to their promise, and write the answer."""

from __future__ import annotations

import json
import time
from collections.abc import Container, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from autotune.best import BestConfig, write_best
from autotune.config import TrainingConfig
from autotune.errors import StorageError
from autotune.measurement import Measurement
from autotune.outcome import Failure, describe
from autotune.tuning.confirming.answer import Confirmed, build_answer, confirmed_by, keep_baseline
from autotune.tuning.confirming.belief import Beliefs
from autotune.tuning.confirming.candidates import Candidate, candidates, contenders
from autotune.tuning.confirming.confirm import Standing, contest, looks
from autotune.tuning.confirming.fates import kept
from autotune.tuning.confirming.playoff import PlayOff
from autotune.tuning.confirming.rounds import TASK, Contestant, Course, time_in_round
from autotune.tuning.confirming.unconfirmed import forget_so_far
from autotune.tuning.events import (
    Answered,
    CandidateRefused,
    CandidateSetAside,
    Event,
    RoundEnded,
)
from autotune.tuning.judging.accuracy import AccuracyVerdict
from autotune.tuning.judging.costs import ColdCosts
from autotune.tuning.reserve import LIMITS_SECONDS
from autotune.tuning.session import Accuracy, Session
from autotune.tuning.storing.study import FinishedTrial

ANSWER = "answer"
"""Of the study's notes: the content of best.yaml, and after how many trials it was found."""
# What a second candidate adds to a contest.
_PROCESSES_MORE = 5
_MOST_AT_ONCE = 3
# No further ones after so many, whose family would be too wide; who was set aside may come again.
_MOST_TESTED = 4
_TIME_IS_UP = "the time is up, and the rounds so far do not decide"

Held = dict[int, tuple[FinishedTrial, tuple[float, ...]]]
"""Number of a trial that is accurate enough to the trial and its qualities, one per seed."""


def conclude(
    session: Session, runs: tuple[Measurement, ...], accuracy: Accuracy
) -> Iterator[Event]:
    """Confirm the fastest candidate that holds, or keep the baseline; write best.yaml."""
    costs = ColdCosts(session.study.finished(), runs)
    won = yield from kept(session.study, _find(session, accuracy, costs))
    if won is None:
        won = keep_baseline(session.baseline, runs, accuracy.rule.baseline)
    best = build_answer(accuracy.prober, costs, won)
    trials = len(session.study.finished())
    session.study.note(ANSWER, {"trials": trials, "best": best.model_dump(mode="json")})
    yield emit(session, best)


def known_answer(session: Session) -> BestConfig | None:
    """The answer of an earlier run, where no trial came after it and none is left to come."""
    answer = session.study.noted(ANSWER)
    if answer is None or answer["trials"] != len(session.study.finished()):
        return None
    if session.end_reason() is None:
        return None
    return BestConfig.model_validate_json(json.dumps(answer["best"]))


def emit(session: Session, best: BestConfig) -> Answered:
    """Write best.yaml.

    Raises:
        StorageError: the file cannot be written; the study keeps the answer.
    """
    out = session.scene.options.out
    try:
        write_best(best, out)
    except OSError as error:
        raise StorageError(
            f"{out} cannot be written: {error.strerror}. The study keeps the answer: free some "
            "space or choose another --out, and run the same command again."
        ) from error
    forget_so_far(session.scene.options)
    return Answered(best, out)


def _find(
    session: Session, accuracy: Accuracy, costs: ColdCosts
) -> Generator[Event, None, Confirmed | None]:
    """The winner of the first group that has one; none once time is up and somebody was tested."""
    pool = candidates(session, accuracy, costs)
    tested: set[int] = set()
    play_off = PlayOff(session, costs)
    while pool:
        pool = yield from _led_by_accurate(session, accuracy, pool)
        pool, later = _in_time(session, accuracy, pool)
        pool = yield from play_off.play(pool)
        group = contenders(pool)[: _affordable(session)]
        held = yield from _hold_accuracy(accuracy, [one.trial for one in group])
        tested |= held.keys()
        aside: Container[int] = ()
        if held:
            beliefs = {_contestant(c.trial): c.belief for c in group if c.trial.number in held}
            won, aside = yield from _test(session, costs, held, beliefs, len(tested))
            if won is not None:
                return won
        left = [one for one in group if one.trial.number in aside]
        if len(tested) < _MOST_TESTED:
            left = [one for one in pool if one in left or one not in group] + later
        pool = _hopeful(left, accuracy)
        # A search whose candidates were all refused has still to test one that may be faster.
        if session.over_budget() and tested:
            break
    return None


def _led_by_accurate(
    session: Session, accuracy: Accuracy, pool: list[Candidate]
) -> Generator[Event, None, list[Candidate]]:
    """The pool without who does not train well enough, as far as it may decide who is tested.

    Timing them again, for which there are so many seconds, would take those from the others.
    """
    while True:
        group = contenders(pool)[: _affordable(session)]
        held = yield from _hold_accuracy(accuracy, [one.trial for one in group])
        refused = [one for one in group if one.trial.number not in held]
        pool = _hopeful([one for one in pool if one not in refused], accuracy)
        if not refused or session.over_budget():
            return pool


def _in_time(
    session: Session, accuracy: Accuracy, pool: list[Candidate]
) -> tuple[list[Candidate], list[Candidate]]:
    """Who may be tested in what is left of the time, and who only if none of those is the answer.

    What is kept of the time has seeds for the first alone, and for nobody where it is spent.
    """
    if session.seconds_left() > 0:
        return pool, []
    proven = [one for one in pool if accuracy.prober.is_proven(one.trial.config)]
    first = [] if proven and session.over_budget() else pool[:1]
    now = [one for one in pool if one in (*first, *proven)]
    return now, [one for one in pool if one not in now]


def _hopeful(pool: Sequence[Candidate], accuracy: Accuracy) -> list[Candidate]:
    """Less who trains like those that do not train well enough."""
    return [one for one in pool if not accuracy.prober.speaks_against(one.trial.config)]


def _affordable(session: Session) -> int:
    """How many candidates there is time to test together: each further one costs processes."""
    spare = session.seconds_left() / (_PROCESSES_MORE * max(session.reserve.run_seconds(), 0.1))
    return 1 + int(min(max(spare, 0.0), _MOST_AT_ONCE - 1))


def _hold_accuracy(
    accuracy: Accuracy, trials: Sequence[FinishedTrial]
) -> Generator[Event, None, Held]:
    """Those of the trials that are proven to train well enough."""
    held: Held = {}
    for trial in trials:
        found = accuracy.prober.proof(trial.config)
        if not isinstance(found, AccuracyVerdict):
            yield CandidateRefused(trial, f"accuracy probe: {describe(found)}")
        elif found.decision != "accept":
            yield CandidateRefused(trial, found.reason)
        else:
            held[trial.number] = (trial, found.qualities)
    return held


def _test(
    session: Session, costs: ColdCosts, held: Held, beliefs: Beliefs, family: int
) -> Generator[Event, None, tuple[Confirmed | None, set[int]]]:
    """The contest of these candidates: its winner, or the numbers of those who may try again."""
    numbers = {_contestant(trial): number for number, (trial, _) in held.items()}
    trials = {contestant: held[number][0] for contestant, number in numbers.items()}
    aside: set[int] = set()
    taken: list[float] = []
    since = time.monotonic()
    course = _course(session, costs, list(held))
    for standing in contest(course, list(numbers), family, beliefs):
        taken.append(time.monotonic() - since)
        yield from _told(standing, trials, _seconds_left(standing, taken, family))
        aside |= {numbers[one] for one in standing.set_aside}
        if standing.winner is not None:
            trial, qualities = held[numbers[standing.winner]]
            return confirmed_by(standing.duels[standing.winner], trial, qualities), set()
        # What the rounds since a look have cost is lost where they do not go on to the next.
        if session.over_budget() and standing.rounds in looks(family):
            left = standing.duels.keys() - standing.refused.keys() - standing.set_aside.keys()
            for one in left:
                yield CandidateRefused(trials[one], _TIME_IS_UP)
            break
        since = time.monotonic()
    return None, aside


def _seconds_left(standing: Standing, taken: Sequence[float], family: int) -> float:
    """An estimate of the time until the answer, where the next look decides."""
    coming = [look for look in looks(family) if look > standing.rounds]
    rounds = coming[0] - standing.rounds if coming and standing.winner is None else 0
    return rounds * median(taken) + LIMITS_SECONDS


def _told(
    standing: Standing, trials: Mapping[Contestant, FinishedTrial], seconds_left: float
) -> Iterator[Event]:
    """A round as events."""
    for one, duel in standing.duels.items():
        yield RoundEnded(one.config, duel.ratios, duel.interval, seconds_left)
    for one, reason in standing.refused.items():
        yield CandidateRefused(trials[one], reason)
    for one, other in standing.set_aside.items():
        yield CandidateSetAside(trials[one], trials[other])


def _course(session: Session, costs: ColdCosts, numbers: Sequence[int]) -> Course:
    """Processes of their own, judged by the search's own objective and limits."""
    scene = session.scene

    def time(config: TrainingConfig, folder: Path, host: str | None) -> Measurement | Failure:
        job = replace(scene.job(TASK, config), host=host)
        run = time_in_round(session.runner, job, folder)
        return session.comparable(run) if isinstance(run, Measurement) else run

    def worth(config: TrainingConfig, run: Measurement) -> float:
        fixed = costs.fixed_seconds(config, run)
        return scene.objective.worth(run.samples_per_second, fixed)

    return Course(
        time=time,
        worth=worth,
        baseline=Contestant("baseline", scene.baseline),
        folder=session.folder("confirm", "-".join(f"{number:04d}" for number in numbers)),
        seed=scene.options.seed,
        memory_limit_bytes=scene.memory_limit_bytes,
    )


def _contestant(trial: FinishedTrial) -> Contestant:
    return Contestant(f"trial{trial.number:04d}", trial.config)
