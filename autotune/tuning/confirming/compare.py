"""Which of two configurations trains faster here: rounds of fresh processes, without a study."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autotune.best import read_best
from autotune.config import TrainingConfig
from autotune.errors import AutotuneError, WorkloadError
from autotune.intervals import Interval
from autotune.job import Job
from autotune.measurement import Measurement
from autotune.outcome import Failure, Lost, describe
from autotune.tuning.confirming.rounds import (
    TASK,
    Contestant,
    Course,
    Duel,
    orders,
    play_round,
    time_in_round,
)
from autotune.tuning.running.runner import Runner
from autotune.tuning.scene import inspect, inspection

FEWEST_ROUNDS = 6
"""With fewer there is no 95 % interval."""
_DEADLINE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two, as a person calls it."""

    label: str
    config: TrainingConfig | None
    """None: the workload's own baseline."""
    confirmed: Interval | None = None
    """How much faster than its baseline an answer says that it is; None where it says nothing, as
    "keep your settings" does."""


@dataclass(frozen=True, slots=True)
class ComparisonOptions:
    """What a person asked for."""

    model_path: Path
    a: Side
    b: Side
    rounds: int = 9
    device: str = "auto"
    seed: int = 0

    def is_met(self, duel: Duel) -> bool:
        """Whether A is as much faster as it is said to be; of two answers, faster than the other.

        B's own settings are what the speed-up of an answer is over, and no other answer's.
        """
        if self.b.config is not None or self.a.config is None:
            return duel.is_faster
        return still_holds(duel, self.a.confirmed)


def side_of(best: Path | None) -> Side:
    """The side that a best.yaml stands for; without one, the workload's own settings.

    Raises:
        UsageError: the file is missing, not valid, or written by a newer autotune.
    """
    if best is None:
        return Side("your settings", None)
    answer = read_best(best)
    confirmed = None if answer.keeps_baseline else answer.evidence.speedup.ci95
    return Side(str(best), answer.training_config, confirmed)


def still_holds(duel: Duel, confirmed: Interval | None) -> bool:
    """Whether rounds against the workload's own settings bear out what an answer says.

    A speed-up has gone where the whole interval lies below the confirmed one; and where the rounds
    show none, while their median lies below the confirmed interval, too. A small speed-up that nine
    rounds happen not to prove, but reach, has not. Who promised nothing may only not be slower.

    Args:
        duel: rounds of the answer's settings with the workload's own.
        confirmed: the interval of the answer's speed-up; None of one that keeps the settings.
    """
    low, high = duel.interval
    if confirmed is None:
        return high >= 1
    return high >= confirmed[0] and (low > 1 or duel.ratio >= confirmed[0])


def compare(options: ComparisonOptions, runner: Runner, folder: Path) -> Iterator[Duel]:
    """The duel of A with B after each round; nothing is decided before the last one.

    Raises:
        UsageError: there is no such device.
        WorkloadError: the workload cannot be built, or fails with one of the configurations.
        AutotuneError: a process was lost to a fault of the machine, and lost again.
    """
    a, b, course = _prepare(options, runner, folder)
    duel, places = Duel(), orders(2, options.seed)
    for number in range(options.rounds):
        order = [(b, a)[place] for place in next(places)]
        results = play_round(course, order, number)
        for one, side in ((b, options.b), (a, options.a)):
            _check(results.get(one.name), side, course.folder / f"{number}-{one.name}")
        timed, reference = results[a.name], results[b.name]
        assert isinstance(timed, Measurement)
        assert isinstance(reference, Measurement)
        duel = duel.after(reference, timed, course.ratio(a.config, timed, reference))
        yield duel


def _prepare(
    options: ComparisonOptions, runner: Runner, folder: Path
) -> tuple[Contestant, Contestant, Course]:
    """Both sides and how they are timed, on what a child says of machine and workload."""
    job = inspection(options.device, options.model_path)
    inspected = inspect(runner, job, folder / "inspect")
    assert inspected.workload is not None
    machine, own = inspected.machine, TrainingConfig.of(inspected.workload.baseline)
    a, b = (
        Contestant(name, (side.config or own).resolved(machine))
        for name, side in (("a", options.a), ("b", options.b))
    )

    def time(config: TrainingConfig, place: Path, host: str | None) -> Measurement | Failure:
        job = Job(
            task=TASK,
            device=machine.device,
            model_path=str(options.model_path.resolve()),
            config=config.as_dict(),
            seed=options.seed,
            deadline_seconds=_DEADLINE_SECONDS,
            host=host,
        )
        return time_in_round(runner, job, place)

    return a, b, Course(time, lambda _, run: run.samples_per_second, b, folder, options.seed)


def _check(result: Measurement | Failure | None, side: Side, folder: Path) -> None:
    """Raise if a side could not be timed."""
    if result is None or isinstance(result, Measurement):
        return
    if isinstance(result, Lost):
        raise AutotuneError(f"{side.label} was lost: {result.detail}. Try the same again.")
    raise WorkloadError(
        f"the workload fails with {side.label}: {describe(result)}\n"
        f"Whole log: {folder / 'stderr.log'}"
    )
