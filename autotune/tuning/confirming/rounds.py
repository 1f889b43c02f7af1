"""Rounds of fresh processes: in each, every contestant is timed once.

Two runs of the same settings minutes apart differ by more than many settings do. Within a round
they lie close together, and over the rounds each contestant comes first, second and last equally
often, so that a drift of the machine falls on all alike. Only ratios within a round are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from autotune.config import TrainingConfig, environ_of
from autotune.intervals import CONFIDENCE, Interval, log_median, median_interval
from autotune.job import Job, Measure, MeasurePlan
from autotune.measurement import Measurement
from autotune.outcome import Failure, Lost, Measured, as_failure
from autotune.tuning.running.runner import Runner

TASK = Measure(MeasurePlan(looks=(3, 6), precision=0.0, max_seconds=1.5))
"""Six blocks, three where steps are slow: what a round tells is one number, and its interval comes
from the other rounds."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """A configuration that takes part, under a name of its own: two may have the same settings."""

    name: str
    config: TrainingConfig


@dataclass(frozen=True, slots=True)
class Duel:
    """Rounds of a reference and a candidate so far."""

    baseline: tuple[Measurement, ...] = ()
    candidate: tuple[Measurement, ...] = ()
    ratios: tuple[float, ...] = ()
    """The candidate's worth over the reference's, one value per round."""
    confidence: float = CONFIDENCE

    @property
    def ratio(self) -> float:
        """The median ratio, on a log scale."""
        return log_median(self.ratios)

    @property
    def interval(self) -> Interval:
        """Interval of the ratio: the sign test on log ratios, turned round."""
        return ratio_interval(self.ratios, self.confidence)

    @property
    def is_faster(self) -> bool:
        """Whether the whole interval lies above 1."""
        return self.interval[0] > 1

    @property
    def losses(self) -> int:
        """Rounds in which the candidate was not faster."""
        return sum(ratio <= 1 for ratio in self.ratios)

    @property
    def peak_memory_bytes(self) -> int:
        """The most that the candidate took in any round."""
        return max(run.peak_memory_bytes for run in self.candidate)

    def after(self, baseline: Measurement, candidate: Measurement, ratio: float) -> Duel:
        """The duel with one more round."""
        return replace(
            self,
            baseline=(*self.baseline, baseline),
            candidate=(*self.candidate, candidate),
            ratios=(*self.ratios, ratio),
        )


@dataclass(frozen=True)
class Course:
    """Where rounds take place: how a contestant is timed and what a timing is worth."""

    time: Callable[[TrainingConfig, Path, str | None], Measurement | Failure]
    """One timing, with its files in that folder, by a fork of the host of that name."""
    worth: Callable[[TrainingConfig, Measurement], float]
    baseline: Contestant
    """The reference of every ratio."""
    folder: Path
    seed: int = 0
    memory_limit_bytes: int | None = None

    def ratio(self, candidate: TrainingConfig, timed: Measurement, reference: Measurement) -> float:
        """The worth of a timing of `candidate` over that of the baseline."""
        return self.worth(candidate, timed) / self.worth(self.baseline.config, reference)


def ratio_interval(ratios: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """The interval that holds the median ratio, taken on logarithms."""
    low, high = median_interval([math.log(ratio) for ratio in ratios], confidence)
    return math.exp(low), math.exp(high)


def orders(size: int, seed: int) -> Iterator[tuple[int, ...]]:
    """Who goes when, round after round, without end.

    Each `size` rounds are a cyclic Latin square: everyone stands in every place once. Names and
    rows are shuffled anew for each, so that nobody always has the same neighbour, or meets the same
    beat of the machine. Of two contestants, each pair of rounds is AB BA or BA AB.
    """
    random = Random(seed)  # noqa: S311 (a schedule, no secret)
    while True:
        names = random.sample(range(size), size)
        for start in random.sample(range(size), size):
            yield (*names[start:], *names[:start])


def play_round(
    course: Course, order: Sequence[Contestant], number: int
) -> dict[str, Measurement | Failure]:
    """Time each contestant once, in this order; ends early where nothing is left to compare."""
    results: dict[str, Measurement | Failure] = {}
    host = _host([course.baseline, *order], number)
    for contestant in order:
        folder = course.folder / f"{number}-{contestant.name}"
        results[contestant.name] = course.time(contestant.config, folder, host)
        failed = [name for name, result in results.items() if not isinstance(result, Measurement)]
        others = {one.name for one in order} - {course.baseline.name}
        if course.baseline.name in failed or others <= set(failed):
            break
    return results


def _host(contestants: Iterable[Contestant], number: int) -> str | None:
    """Whom all of a round are forked from, None for nobody: a new interpreter for each round.

    What an interpreter's start decides, where its libraries lie, may favour one contestant, and
    rounds have to be independent of each other. Where one cannot be forked, none is.
    """
    if any(environ_of(one.config) for one in contestants):
        return None
    return f"round {number}"


def time_in_round(runner: Runner, job: Job, folder: Path) -> Measurement | Failure:
    """One timing of a round; a lost one is repeated."""
    outcome = runner.run(job, folder)
    if isinstance(outcome, Lost):  # says nothing about the configuration
        outcome = runner.run(job, folder)
    return outcome.measurement if isinstance(outcome, Measured) else as_failure(outcome)
