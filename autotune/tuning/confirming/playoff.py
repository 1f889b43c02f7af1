"""Candidates that nobody can tell apart are timed again before the best of them is put to the test.

Where two processes of the same settings differ by a tenth, the fastest of many timings is mostly
the luckiest. A contest with the baseline takes fresh processes for what it proves; to choose who
goes there, forks like those of the trials are enough, and cost a fraction of it.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np

from autotune.job import Measure
from autotune.outcome import Measured
from autotune.tuning.confirming.candidates import Candidate, worth
from autotune.tuning.events import StepStarted
from autotune.tuning.judging.costs import ColdCosts
from autotune.tuning.sampling.promise import expected_improvement
from autotune.tuning.session import Session, trial_seconds
from autotune.tuning.trial_plan import spread_of_processes, trial_plan

_PRECISE = 0.005
"""As a logarithm: what another is expected to gain over the first that is not worth a timing."""
_MOST_AT_ONCE = 6
# Three runs of the baseline may differ by a third of what is usual; a timing is no finer than this.
_AT_MOST, _FINEST = 3, 0.005
_SHARE = 1 / 2
"""Of the trials' seconds, at most, goes into that."""


def play_off(
    session: Session, costs: ColdCosts, pool: Sequence[Candidate]
) -> Generator[StepStarted, None, list[Candidate]]:
    """The candidates, the fastest first, with what further timings of the near ones tell."""
    found, number = [_with_noise(session, one) for one in pool], 0
    spent, allowed = 0.0, _allowed_seconds(session)
    while rivals := _rivals(found):
        seconds = sum(trial_seconds(one.trial) for one in rivals)
        if spent + seconds > allowed:
            break
        spent += seconds
        detail = f"{len(rivals)} that may be as fast as each other, timed again"
        yield StepStarted(detail, session.conclusion_seconds() + seconds)
        again = [_timed_again(session, costs, one, number) for one in rivals]
        found = sorted((*again, *(one for one in found if one not in rivals)), key=_slower)
        number += 1
    return found


def _with_noise(session: Session, one: Candidate) -> Candidate:
    """What a timing varies by is less than trials of many configurations let one tell."""
    noise = max(_FINEST, _AT_MOST * spread_of_processes(session))
    return replace(one, belief=replace(one.belief, noise=min(one.belief.noise, noise)))


def _allowed_seconds(session: Session) -> float:
    trials = sum(map(trial_seconds, session.study.finished()[1:]))
    return min(_SHARE * trials, session.seconds_left())


def _rivals(pool: Sequence[Candidate]) -> list[Candidate]:
    """The first, and who may be faster by so much that it pays to know; nobody where none is."""
    if len(pool) < 2:  # noqa: PLR2004
        return []
    first = pool[0].belief
    others = pool[1:_MOST_AT_ONCE]
    means = np.array([one.belief.mean for one in others])
    deviations = np.array([math.hypot(one.belief.deviation, first.deviation) for one in others])
    gains = expected_improvement(means, deviations, first.mean)
    near = [one for one, gain in zip(others, gains, strict=True) if gain > _PRECISE]
    return [pool[0], *near] if near else []


def _timed_again(session: Session, costs: ColdCosts, one: Candidate, number: int) -> Candidate:
    """With one more timing; what fails now is left to the contest to refuse."""
    job = session.scene.job(Measure(trial_plan(session)), one.trial.config)
    folder = session.folder("again", f"{one.trial.number:04d}-{number}")
    outcome = session.runner.run(job, folder)
    if not isinstance(outcome, Measured):
        return one
    shown = worth(session, costs, one.trial, outcome.measurement.samples_per_second)
    return replace(one, belief=one.belief.after(math.log(shown), 1))


def _slower(one: Candidate) -> float:
    return -one.belief.mean
