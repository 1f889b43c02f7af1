"""Whether a candidate is really faster than the baseline: paired, alternating, fresh processes.

The best of many noisy measurements looks better than it is, so no number from the search is ever
emitted. Each round times both configurations once, each in a process of its own, and takes turns at
who goes first, so that a drift of the machine falls on both alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from autotune.config import TrainingConfig
from autotune.intervals import Interval, median_interval
from autotune.job import Measure, MeasurePlan
from autotune.measurement import Measurement
from autotune.outcome import Failure, Lost, Measured, as_failure
from autotune.tuning.runner import Runner
from autotune.tuning.scene import Scene

# Six rounds are the fewest with a 95 % interval, the range; nine drop the extreme on either side.
LOOKS = (6, 9)
PLAN = MeasurePlan(looks=(5,))


@dataclass(frozen=True, slots=True)
class Duel:
    """Rounds of baseline and candidate so far."""

    baseline: tuple[Measurement, ...] = ()
    candidate: tuple[Measurement, ...] = ()

    @property
    def ratios(self) -> tuple[float, ...]:
        """Candidate's throughput over the baseline's, one value per round."""
        pairs = zip(self.candidate, self.baseline, strict=True)
        return tuple(c.samples_per_second / b.samples_per_second for c, b in pairs)

    @property
    def ratio(self) -> float:
        """The median ratio."""
        return median(self.ratios)

    @property
    def interval(self) -> Interval:
        """95 % interval of the ratio: the sign test on log ratios, turned round."""
        low, high = median_interval([math.log(ratio) for ratio in self.ratios])
        return math.exp(low), math.exp(high)

    @property
    def is_faster(self) -> bool:
        """Whether the whole interval lies above 1."""
        return self.interval[0] > 1


def duel(
    scene: Scene, runner: Runner, candidate: TrainingConfig, folder: Path
) -> Iterator[Duel | Failure]:
    """The duel after each round; ends early once it is decided, or with a failure."""
    state = Duel()
    for look in LOOKS:
        while len(state.candidate) < look:
            outcome = _round(scene, runner, candidate, len(state.candidate), folder)
            if not isinstance(outcome, tuple):
                yield outcome
                return
            baseline, timed = outcome
            state = Duel((*state.baseline, baseline), (*state.candidate, timed))
            yield state
        if state.is_faster or state.ratio <= 1:
            return


def _round(
    scene: Scene, runner: Runner, candidate: TrainingConfig, number: int, folder: Path
) -> tuple[Measurement, Measurement] | Failure:
    runs: dict[str, Callable[[], Measurement | Failure]] = {
        "baseline": lambda: _measure(scene, runner, scene.baseline, folder / f"{number}-baseline"),
        "candidate": lambda: _measure(scene, runner, candidate, folder / f"{number}-candidate"),
    }
    order = ["baseline", "candidate"] if number % 2 == 0 else ["candidate", "baseline"]
    results: dict[str, Measurement] = {}
    for name in order:
        result = runs[name]()
        if not isinstance(result, Measurement):
            return result
        results[name] = result
    return results["baseline"], results["candidate"]


def _measure(
    scene: Scene, runner: Runner, config: TrainingConfig, folder: Path
) -> Measurement | Failure:
    job = replace(scene.job(Measure(PLAN), config), fresh_interpreter=True)
    outcome = runner.run(job, folder)
    if isinstance(outcome, Lost):  # says nothing about the configuration
        outcome = runner.run(job, folder)
    return outcome.measurement if isinstance(outcome, Measured) else as_failure(outcome)
