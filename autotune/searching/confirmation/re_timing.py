"""Re-timing: close candidates are timed again before the best of them is confirmed.

If two processes of the same settings differ by a tenth, the fastest of many timings is mostly the
luckiest. Confirmation needs fresh processes for its claim. To choose its candidates, forks like
those of trials are enough, and they cost a fraction of that.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np

from autotune.sampling.acquisition import expected_improvement
from autotune.searching.confirmation.candidates import Candidate, worth
from autotune.searching.confirmation.result import ColdCosts
from autotune.searching.run.events import StepStarted
from autotune.searching.run.search_run import SearchRun
from autotune.searching.run.time_budget import LIMITS_SECONDS, trial_seconds
from autotune.searching.trials.drift import drift_now, is_checked, timed_again
from autotune.searching.trials.trial_plan import spread_of_processes

_PRECISE = 0.005
"""Expected gain over the first candidate, as a logarithm, that is not worth a timing."""
MOST_AT_ONCE = 6
"""Most candidates that are timed again at a time."""
# The noise of a re-timing is capped at this multiple of the spread of three baseline runs, which
# may be a third of the true one by chance. The cap is at least the second number.
_AT_MOST, _FINEST = 3, 0.005


class ReTiming:
    """Re-timing of candidates within the seconds that one search may spend on it."""

    def __init__(self, search: SearchRun, costs: ColdCosts) -> None:
        self._search = search
        self._costs = costs
        # Re-timings of an earlier run of the search; each candidate takes its own in once.
        self._told = dict(search.study.notes.re_timings)
        self._seconds_left = search.time_budget.re_timing_seconds() - self._seconds_told()
        # The noise fitted to trials of many configurations may be too high for one timing.
        self._noise = max(_FINEST, _AT_MOST * spread_of_processes(search))
        self._failed: set[int] = set()
        # Speed of the machine at which each candidate was ranked last.
        self._speeds: dict[int, float] = {}

    def play(self, pool: Sequence[Candidate]) -> Generator[StepStarted, None, list[Candidate]]:
        """Time close candidates again; update and return all of them, the fastest first."""
        if len(pool) > 1:
            self._doubt(pool)
        found = sorted(map(self._informed, pool), key=lambda one: -one.posterior.mean)
        while rivals := self._affordable(self._rivals(found)):
            if self._search.clock.is_over:
                break
            start = time.monotonic()
            seconds = sum(map(self._seconds_again, rivals))
            detail = f"re-timing {len(rivals)} candidates that may be equally fast"
            spent = self._search.time_budget.re_timing_seconds() - self._seconds_left
            yield StepStarted(detail, self._search.time_budget.conclusion_seconds() - spent)
            speed = drift_now(self._search)
            for one in rivals:
                self._time_again(one, speed)
            others = [one for one in found if one not in rivals]
            found = sorted((*rivals, *others), key=lambda one: -one.posterior.mean)
            self._seconds_left -= max(seconds, time.monotonic() - start)
        return found

    def _seconds_told(self) -> float:
        """Return the seconds of an earlier run's re-timings, which count to the same allowance."""
        finished, again = self._search.study.finished(), self._search.time_budget.seconds_again
        return sum(len(self._told.get(one.number, ())) * again(one) for one in finished)

    def _seconds_again(self, one: Candidate) -> float:
        return self._search.time_budget.seconds_again(one.trial)

    def _doubt(self, pool: Sequence[Candidate]) -> None:
        """Rank candidates anew that were ranked at another speed of the machine than the present.

        Something slowed them or the baseline, so each may be off by as much; nobody knows which.
        """
        price = 0.0 if is_checked(self._search) else trial_seconds(self._search.baseline)
        if self._search.clock.is_over or price > min(self._seconds_left, self._spare(pool[0])):
            return
        start = time.monotonic()
        speed = drift_now(self._search, resumed=not is_checked(self._search))
        self._seconds_left -= time.monotonic() - start
        for one in pool:
            ranked = self._speeds.get(one.trial.number, one.trial.details.machine_speed or 1.0)
            off, before = math.log(speed / ranked), one.posterior
            one.posterior = replace(before, deviation=math.hypot(before.deviation, off))
            self._speeds[one.trial.number] = speed

    def _informed(self, one: Candidate) -> Candidate:
        """Update a candidate by an earlier run's re-timings, with the noise of one; return it."""
        one.posterior = replace(one.posterior, noise=min(one.posterior.noise, self._noise))
        for rate in self._told.pop(one.trial.number, ()):
            self._update(one, rate)
        return one

    def _update(self, one: Candidate, rate: float) -> None:
        one.posterior = one.posterior.after(self._shown(one, rate), 1)

    def _shown(self, one: Candidate, rate: float) -> float:
        """Return the logarithm of a candidate's worth at `rate` samples per second."""
        return math.log(worth(self._search, self._costs, one.trial, rate))

    def _rivals(self, pool: Sequence[Candidate]) -> list[Candidate]:
        """Return the first and those that may gain enough over it to be timed; or none."""
        running = [one for one in pool if one.trial.number not in self._failed]
        if len(running) < 2:  # noqa: PLR2004
            return []
        first, others = running[0], running[1:MOST_AT_ONCE]
        posteriors = [one.posterior for one in others]
        means = np.array([posterior.mean for posterior in posteriors])
        apart = [
            math.hypot(posterior.deviation, first.posterior.deviation) for posterior in posteriors
        ]
        gains = expected_improvement(means, np.array(apart), first.posterior.mean)
        near = [one for one, gain in zip(others, gains, strict=True) if gain > _PRECISE]
        return [first, *near] if near else []

    def _affordable(self, rivals: Sequence[Candidate]) -> list[Candidate]:
        """Return as many of the rivals as there are seconds for; none if that is only one."""
        if not rivals:
            return []
        taken = np.cumsum(list(map(self._seconds_again, rivals)))
        count = int((taken <= min(self._seconds_left, self._spare(rivals[0]))).sum())
        return list(rivals[:count]) if count > 1 else []

    def _spare(self, first: Candidate) -> float:
        """Return the seconds that the confirmation of the first candidate leaves."""
        budget = self._search.time_budget
        needed = budget.rounds_seconds(first.trial) + budget.seeds_seconds(first.trial)
        return self._search.clock.left - needed - LIMITS_SECONDS

    def _time_again(self, one: Candidate, speed: float) -> None:
        """Time a candidate once more, and update it.

        One that fails stays as it is, for the confirmation to refuse.
        """
        rates, _ = timed_again(self._search, one.trial, speed)
        if not rates:
            self._failed.add(one.trial.number)
        for rate in rates:
            self._update(one, rate)
