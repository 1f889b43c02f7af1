"""Rounds of fresh processes, each of which times every configuration once.

Two runs of the same settings minutes apart differ by more than many settings do. Only ratios within
a round are compared, where timings are close together. Over the rounds, each configuration comes
first, second and last equally often, so that a drift of the machine affects all alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from autotune.configuration.job import SEARCH_HOST, Job, Measure, MeasurePlan
from autotune.configuration.training_config import TrainingConfig, environ_of
from autotune.context.budget_clock import OUT_OF_TIME
from autotune.processes.runner import Runner
from autotune.values.measurement import UNWATCHED, Measurement, disturbance_of
from autotune.values.outcome import Failure, Lost, Measured, as_failure
from autotune.values.statistics import CONFIDENCE, Interval, log_median, median_interval

TASK = Measure(MeasurePlan(looks=(3, 6), precision=0.0, max_seconds=1.5))
"""Task of a round: six blocks, or three of slow steps.

A round gives one ratio; the interval comes from the other rounds.
"""
_PROCESS_SECONDS = 2 * TASK.plan.max_seconds
"""Approximate seconds of a round's process: its blocks, and as long for building and warm-up."""


Results = dict[str, Measurement | Failure]
"""Results of a round by the names of its configurations."""


@dataclass(frozen=True, slots=True)
class Participant:
    """A configuration in rounds, with a name of its own, since two may have the same settings."""

    name: str
    config: TrainingConfig


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """Paired comparison of a candidate with a reference, over the rounds so far."""

    baseline: tuple[Measurement, ...] = ()
    """Timings of the reference, one per round."""
    candidate: tuple[Measurement, ...] = ()
    """Timings of the candidate, one per round."""
    ratios: tuple[float, ...] = ()
    """The candidate's worth over the reference's, one value per round."""
    confidence: float = CONFIDENCE
    repeated: tuple[str, ...] = ()
    """Disturbance of each round that was void and repeated."""

    @property
    def ratio(self) -> float:
        """The median ratio, on a log scale."""
        return log_median(self.ratios)

    @property
    def interval(self) -> Interval:
        """Confidence interval of the median ratio, by inverting the sign test on log ratios."""
        return ratio_interval(self.ratios, self.confidence)

    @property
    def is_faster(self) -> bool:
        """True if the whole interval lies above 1."""
        return self.interval[0] > 1

    @property
    def losses(self) -> int:
        """Number of rounds in which the candidate was not faster."""
        return sum(ratio <= 1 for ratio in self.ratios)

    @property
    def disturbed(self) -> int | None:
        """Number of rounds that count although a side was disturbed; None if not known."""
        pairs = list(zip(self.baseline, self.candidate, strict=True))
        found = sum(own.is_disturbed or run.is_disturbed for own, run in pairs)
        unwatched = any(UNWATCHED in run.flags for pair in pairs for run in pair)
        return None if unwatched and not found else found

    @property
    def peak_memory_bytes(self) -> int:
        """Largest peak memory of the candidate in any round, in bytes."""
        return max(run.peak_memory_bytes for run in self.candidate)

    def after(
        self, baseline: Measurement, candidate: Measurement, ratio: float
    ) -> PairedComparison:
        """Return the comparison with one more round."""
        return replace(
            self,
            baseline=(*self.baseline, baseline),
            candidate=(*self.candidate, candidate),
            ratios=(*self.ratios, ratio),
        )

    def repeating(self, disturbance: str) -> PairedComparison:
        """Return the comparison with one more void round."""
        return replace(self, repeated=(*self.repeated, disturbance))


@dataclass(frozen=True)
class Course:
    """Setup of rounds: the reference, and functions that time a configuration and value it."""

    time: Callable[[TrainingConfig, Path, str | None], Measurement | Failure]
    """Function that times a configuration, with its folder and the warm host to fork, if any."""
    worth: Callable[[TrainingConfig, Measurement], float]
    """Function that values a timing by the objective, higher is better."""
    baseline: Participant
    """The reference of every ratio."""
    folder: Path
    seed: int = 0
    memory_limit_bytes: int | None = None
    host_seconds: float = 0.0
    """Seconds to start a warm host for a round, with the dataset that it builds."""
    may_repeat: Callable[[], bool] = lambda: True
    """Function that returns True while there is time to repeat a disturbed round."""

    def ratio(self, candidate: TrainingConfig, timed: Measurement, reference: Measurement) -> float:
        """Return the worth of a timing of `candidate` over that of the baseline."""
        return self.worth(candidate, timed) / self.worth(self.baseline.config, reference)


def ratio_interval(ratios: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Return the confidence interval of the median ratio, computed on logarithms."""
    low, high = median_interval([math.log(ratio) for ratio in ratios], confidence)
    return math.exp(low), math.exp(high)


def orders(size: int, seed: int) -> Iterator[tuple[int, ...]]:
    """Yield the order of each round, as positions 0 to `size` - 1, without end.

    Every `size` rounds are a cyclic Latin square: each configuration is once in each place. Names
    and rows are shuffled anew for each square, so that neighbours change and no period of the
    machine favours one. With two configurations, each pair of rounds is AB BA or BA AB.
    """
    random = Random(seed)  # noqa: S311 (a schedule, no secret)
    while True:
        names = random.sample(range(size), size)
        for start in random.sample(range(size), size):
            yield (*names[start:], *names[:start])


def play_round(course: Course, order: Sequence[Participant], number: int) -> Results:
    """Time each configuration once, in this order; stop early if nothing is left to compare."""
    results: Results = {}
    host = host_of_round([course.baseline, *order], number, course.host_seconds)
    for participant in order:
        folder = course.folder / f"{number}-{participant.name}"
        results[participant.name] = course.time(participant.config, folder, host)
        failed = [name for name, result in results.items() if not isinstance(result, Measurement)]
        others = {one.name for one in order} - {course.baseline.name}
        if course.baseline.name in failed or others <= set(failed):
            break
    return results


def disturbance_in(results: Results) -> str:
    """Return what disturbed any timing of a round; empty if nothing did."""
    return disturbance_of(run for run in results.values() if isinstance(run, Measurement))


def host_of_round(
    participants: Iterable[Participant], number: int, host_seconds: float
) -> str | None:
    """Return the name of the warm host from which the processes of a round are forked.

    A round has a host of its own if that is cheap. The start of an interpreter decides where its
    libraries lie, which may favour one configuration, and rounds must be independent. The host is
    None if any configuration needs environment variables: each process is then a new interpreter.
    """
    configs = {one.name: one.config for one in participants}
    if any(map(environ_of, configs.values())):
        return None
    return f"round {number}" if has_own_host(host_seconds, len(configs)) else SEARCH_HOST


def has_own_host(host_seconds: float, participants: int) -> bool:
    """Return whether a round starts a host of its own, instead of using the search's.

    It does if starting the host and building its dataset take no longer than the round's processes.
    A slower dataset would at least halve the rounds within a time budget, which costs more
    certainty than the placement of libraries.
    """
    return host_seconds <= participants * _PROCESS_SECONDS


def time_in_round(runner: Runner, job: Job, folder: Path) -> Measurement | Failure:
    """Run one timing of a round, and once more if it was lost."""
    outcome = runner.run(job, folder)
    if isinstance(outcome, Lost) and outcome.detail != OUT_OF_TIME:
        # A lost process says nothing about the configuration.
        outcome = runner.run(job, folder)
    return outcome.measurement if isinstance(outcome, Measured) else as_failure(outcome)
