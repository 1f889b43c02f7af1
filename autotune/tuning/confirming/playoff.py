"""Candidates that nobody can tell apart are timed again before the best of them is put to the test.

Where two processes of the same settings differ by a tenth, the fastest of many timings is mostly
the luckiest. A contest with the baseline takes fresh processes for what it proves; to choose who
goes there, forks like those of the trials are enough, and cost a fraction of it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np

from autotune.job import Measure
from autotune.outcome import Measured
from autotune.text import readable
from autotune.tuning.confirming.candidates import Candidate, worth
from autotune.tuning.drift import drift_now
from autotune.tuning.events import StepStarted
from autotune.tuning.judging.costs import ColdCosts
from autotune.tuning.reserve import seconds_again
from autotune.tuning.sampling.promise import expected_improvement
from autotune.tuning.session import Session
from autotune.tuning.trial_plan import deadline, spread_of_processes, trial_plan

AGAIN = "timed_again"
"""Of the study's notes: samples per second of each further timing, by the trial's number."""
_PRECISE = 0.005
"""As a logarithm: what another is expected to gain over the first that is not worth a timing."""
_MOST_AT_ONCE = 6
# Three runs of the baseline may differ by a third of what is usual; a timing is no finer than this.
_AT_MOST, _FINEST = 3, 0.005


class PlayOff:
    """What one search spends on timing candidates again."""

    def __init__(self, session: Session, costs: ColdCosts) -> None:
        self._session = session
        self._costs = costs
        # What an earlier run of the search was told, which each candidate takes in once.
        self._told: dict[str, list[float]] = dict(session.study.noted(AGAIN, {}))
        self._seconds_left = session.reserve.play_off_seconds() - self._seconds_told()
        # Trials of many configurations do not tell of a timing that it varies by so little.
        self._noise = max(_FINEST, _AT_MOST * spread_of_processes(session))
        self._failed: set[int] = set()

    def play(self, pool: Sequence[Candidate]) -> Generator[StepStarted, None, list[Candidate]]:
        """The candidates, the fastest first, with what further timings of the near ones tell."""
        found = sorted(map(self._informed, pool), key=lambda one: -one.belief.mean)
        while rivals := self._affordable(self._rivals(found)):
            if self._session.over_budget():
                break
            start = time.monotonic()
            seconds = sum(seconds_again(one.trial) for one in rivals)
            detail = f"{len(rivals)} that may be as fast as each other, timed again"
            spent = self._session.reserve.play_off_seconds() - self._seconds_left
            yield StepStarted(detail, self._session.conclusion_seconds() - spent)
            speed = drift_now(self._session)
            again = [self._timed_again(one, speed) for one in rivals]
            others = [one for one in found if one not in rivals]
            found = sorted((*again, *others), key=lambda one: -one.belief.mean)
            self._seconds_left -= max(seconds, time.monotonic() - start)
        return found

    def _seconds_told(self) -> float:
        """What the timings of an earlier run took, out of the same allowance."""
        finished = self._session.study.finished()
        return sum(len(self._told.get(str(t.number), ())) * seconds_again(t) for t in finished)

    def _informed(self, one: Candidate) -> Candidate:
        """With what further timings it varies by, and what those of an earlier run told."""
        belief = replace(one.belief, noise=min(one.belief.noise, self._noise))
        for rate in self._told.pop(str(one.trial.number), ()):
            belief = belief.after(self._shown(one, rate), 1)
        return replace(one, belief=belief)

    def _shown(self, one: Candidate, rate: float) -> float:
        """The logarithm of what such a rate is worth."""
        return math.log(worth(self._session, self._costs, one.trial, rate))

    def _rivals(self, pool: Sequence[Candidate]) -> list[Candidate]:
        """The first, and who may be faster by so much that it pays to know; or nobody."""
        running = [one for one in pool if one.trial.number not in self._failed]
        if len(running) < 2:  # noqa: PLR2004
            return []
        first, others = running[0], running[1:_MOST_AT_ONCE]
        beliefs = [one.belief for one in others]
        means = np.array([belief.mean for belief in beliefs])
        apart = [math.hypot(belief.deviation, first.belief.deviation) for belief in beliefs]
        gains = expected_improvement(means, np.array(apart), first.belief.mean)
        near = [one for one, gain in zip(others, gains, strict=True) if gain > _PRECISE]
        return [first, *near] if near else []

    def _affordable(self, rivals: Sequence[Candidate]) -> list[Candidate]:
        """As many of them as there are seconds for; nobody where that is one alone."""
        taken = np.cumsum([seconds_again(one.trial) for one in rivals])
        count = int((taken <= self._seconds_left).sum())
        return list(rivals[:count]) if count > 1 else []

    def _timed_again(self, one: Candidate, speed: float) -> Candidate:
        """With one more timing; what fails now is left to the contest to refuse."""
        session, number = self._session, one.trial.number
        told = session.study.noted(AGAIN, {}).get(str(number), [])
        job = session.scene.job(
            Measure(trial_plan(session)), one.trial.config, deadline(session, one.trial.config)
        )
        outcome = session.runner.run(job, session.folder("again", f"{number:04d}-{len(told)}"))
        if not isinstance(outcome, Measured):
            self._failed.add(number)
            return one
        rate = outcome.measurement.samples_per_second / speed
        session.study.note_entry(AGAIN, str(number), [*told, readable(rate)])
        return replace(one, belief=one.belief.after(self._shown(one, rate), 1))
