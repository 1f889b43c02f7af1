"""Rounds of fresh processes, each of which times every configuration once.

Two runs of the same settings minutes apart differ by more than many settings do. So only timings
within a round are compared, which are close together and train on the same samples. Each round has
another seed and other samples. Over the rounds, each configuration comes first, second and last
equally often, so that a drift of the machine affects all alike.

A disturbed timing is discarded as long as repeats are left. Only the disturbance decides, before
any rate is looked at: repeating timings that look slow would favour the lucky.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Generic, TypeVar

from autotune.configuration.job import SEARCH_HOST, Job, MeasurePlan
from autotune.configuration.training_config import TrainingConfig, environ_of
from autotune.process.runner import Runner
from autotune.process.stop import OUT_OF_TIME
from autotune.values import statistics
from autotune.values.measurement import UNWATCHED, Measurement, disturbance_of
from autotune.values.outcome import Failure, Lost, Measured, as_failure

T = TypeVar("T")
PLAN = MeasurePlan(block_counts=(3, 6), precision=0.0, max_seconds=1.5)
"""Plan of each side's first timing: six blocks, or three of slow steps.

All later ones take as many samples. The interval comes from the rounds, not from the blocks.
"""
# Approximate seconds of a round's process: its blocks, and as long for building and warm-up.
_PROCESS_SECONDS = 2 * PLAN.max_seconds

Results = dict[str, Measurement | Failure]
"""Results of a round by the names of its configurations."""


@dataclass(frozen=True, slots=True)
class Participant:
    """A configuration in rounds, with a name of its own, since two may have the same settings."""

    name: str
    config: TrainingConfig
    seeds_to_loss: tuple[statistics.Part, ...] = field(default=(), compare=False)
    """See `PairedComparison.seeds_to_loss`."""


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """Paired comparison of a candidate with a reference, over the rounds so far."""

    baseline: tuple[Measurement, ...] = ()
    """Timings of the reference, one per round."""
    candidate: tuple[Measurement, ...] = ()
    """Timings of the candidate, one per round."""
    costs: tuple[statistics.Part, ...] = ()
    """Seconds of a sample on both sides, the reference's first, a pair per round.

    Where the time of a run is the objective, that run's start is in them.
    """
    seeds_to_loss: tuple[statistics.Part, ...] = ()
    """Samples that both sides need for a loss, the reference's first, a pair per seed.

    Where the time to a loss is the objective, and the training is not the reference's.
    """
    confidence: float = statistics.CONFIDENCE
    repeated: tuple[str, ...] = ()
    """Disturbance of each round that was void and repeated."""

    @property
    def ratios(self) -> tuple[float, ...]:
        """The candidate's speed-up in each round."""
        return tuple(self._fewer * own / new for own, new in self.costs)

    @property
    def ratio(self) -> float:
        """The speed-up: the reference's seconds in all rounds over the candidate's."""
        return self._fewer * statistics.ratio_of(self.costs)

    @property
    def interval(self) -> statistics.Interval:
        """Confidence interval of the speed-up, see `ratio_interval`."""
        known = filter(None, (self.costs, self.seeds_to_loss))
        factors = (statistics.ratio_interval(parts, self.confidence) for parts in known)
        return statistics.combined(self.ratio, *factors)

    @property
    def _fewer(self) -> float:
        """The reference's samples to a loss over the candidate's; 1 without such an objective."""
        return statistics.ratio_of(self.seeds_to_loss) if self.seeds_to_loss else 1.0

    @property
    def is_faster(self) -> bool:
        """True if the whole interval lies above 1."""
        return self.interval[0] > 1

    def would_win(self, rounds: int, deviations: float = 0.0) -> bool:
        """Return whether two or more `rounds` with the spread of these would show it faster.

        The speed-up may be underestimated by `deviations` standard errors.
        """
        known = len(self.costs)
        error = statistics.log_deviation(self.costs) if known > 1 else 0.0
        coming = (
            statistics.student((1 + self.confidence) / 2, rounds - 1)
            * error
            * math.sqrt(known / rounds)
        )
        if self.seeds_to_loss:  # whose interval stays as wide as it is
            low, high = statistics.ratio_interval(self.seeds_to_loss, self.confidence)
            coming = math.hypot(coming, math.log(high / low) / 2)
        return math.log(self.ratio) + deviations * error > coming

    @property
    def disturbed(self) -> int | None:
        """Number of rounds that count although a side was disturbed; None if not known."""
        pairs = list(zip(self.baseline, self.candidate, strict=True))
        found = sum(own.is_disturbed or run.is_disturbed for own, run in pairs)
        unwatched = any(UNWATCHED in run.flags for pair in pairs for run in pair)
        return None if unwatched and not found else found

    def after(
        self, baseline: Measurement, candidate: Measurement, costs: statistics.Part
    ) -> PairedComparison:
        """Return the comparison with one more round."""
        return replace(
            self,
            baseline=(*self.baseline, baseline),
            candidate=(*self.candidate, candidate),
            costs=(*self.costs, costs),
        )

    def repeating(self, disturbance: str) -> PairedComparison:
        """Return the comparison with one more void round."""
        return replace(self, repeated=(*self.repeated, disturbance))


@dataclass
class Samples:
    """Samples that the timings of some rounds share, once each side was timed.

    They begin where the longest warm-up ended, and are as many as the slower side took in its time,
    so that both sides meet the same slow batches. A side with larger batches may add to them.
    """

    warmup: int = 0
    block: int = 0
    blocks: int = 0
    timed: set[str] = field(default_factory=set)
    """Names of those that were timed."""

    def plan(self, name: str, plan: MeasurePlan) -> MeasurePlan:
        """Return the plan of a participant's next timing; `plan` for its first one."""
        if name not in self.timed:
            return plan
        return replace(
            plan,
            block_counts=(self.blocks,),
            warmup_samples=self.warmup,
            block_samples=self.block,
        )

    def add(self, name: str, run: Measurement) -> None:
        """Take in a timing."""
        self.warmup = max(self.warmup, run.warmup_samples)
        block = max(block.samples for block in run.blocks)
        blocks = sum(not one.is_disturbed for one in run.blocks) or len(run.blocks)
        if name in self.timed:
            self.block = max(self.block, block)
        elif not self.timed or block * blocks < self.block * self.blocks:
            self.block, self.blocks = block, blocks
        self.timed.add(name)


@dataclass(frozen=True)
class Course:
    """Setup of rounds: the reference, and functions that time a configuration and value it."""

    time: Callable[[TrainingConfig, Path, MeasurePlan, str | None, int], Measurement | Failure]
    """Function that times a configuration in a process with this folder, and under this plan.

    It is forked from a warm host, or a new interpreter without one; a round has one seed.
    """
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
    plan: MeasurePlan = PLAN
    """Plan of the first timing."""
    samples: Samples = field(default_factory=Samples)

    def seconds(self, config: TrainingConfig, timed: Measurement) -> float:
        """Return the seconds of a sample in a timing of a configuration."""
        return 1 / self.worth(config, timed)


def orders(size: int, seed: int) -> Iterator[tuple[int, ...]]:
    """Yield the order of each round, as positions 0 to `size` - 1, without end.

    Every `size` rounds are a cyclic Latin square: each configuration is once in each place. Names
    and rows are shuffled again for each square, so that neighbours change and no period of the
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
        plan = course.samples.plan(participant.name, course.plan)
        found = course.time(participant.config, folder, plan, host, course.seed + number)
        results[participant.name] = found
        if isinstance(found, Measurement):
            course.samples.add(participant.name, found)
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


@dataclass
class Repeats(Generic[T]):
    """Number of repeats left, and the void timings so far."""

    left: int
    may_start: Callable[[], bool] = lambda: True
    """Function that returns True while there is time for a repeat."""
    _void: list[T] = field(default_factory=list)

    def admit(self, timed: T, disturbance: str) -> list[T]:
        """Return the timings that count from now on; empty if this one is to be repeated.

        A disturbed timing, see `disturbance_of`, that cannot be repeated counts, with all that were
        void before it.
        """
        if not disturbance:
            return [timed]
        if self.left > 0 and self.may_start():
            self.left -= 1
            self._void.append(timed)
            return []
        void, self._void = self._void, []
        return [*void, timed]
