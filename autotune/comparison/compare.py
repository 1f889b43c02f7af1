"""Paired comparison of two configurations in rounds of fresh processes, without a study."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from autotune.comparison import rounds as paired
from autotune.comparison.race import with_rounds
from autotune.configuration.best_config import Baseline, BestConfig, Throughput, read_best
from autotune.configuration.job import Job, Measure, MeasurePlan
from autotune.configuration.training_config import BATCH_KNOBS, TrainingConfig
from autotune.context.inspection import Looked, look
from autotune.context.options import Resources, WorkloadOptions
from autotune.context.ranks import check_room
from autotune.context.script_ways import Wanted
from autotune.context.workload import words_of
from autotune.process.runner import Runner
from autotune.values.errors import AutotuneError, UsageError, WorkloadError
from autotune.values.machine import Machine
from autotune.values.measurement import Measurement, rate_of
from autotune.values.outcome import Failure, Lost, Observed, describe
from autotune.values.statistics import Interval, combined

FEWEST_ROUNDS = 6
"""Fewest rounds that give a 95 % interval."""
_DEADLINE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two configurations, under the name that messages show."""

    label: str
    config: TrainingConfig | None
    """None for the workload's own baseline."""
    confirmed: Interval | None = None
    """Interval of the speed-up that a best.yaml states; None if there is none."""
    is_edited: bool = False
    """True if settings of a best.yaml were edited, so that what it states is not of these."""
    best: BestConfig | None = field(default=None, compare=False)
    """Content of the best.yaml; None without one."""


@dataclass(frozen=True, slots=True)
class ComparisonOptions:
    """Options of a comparison, as the user gave them."""

    workload: WorkloadOptions
    a: Side
    b: Side
    rounds: int = 9
    resources: Resources = field(default_factory=Resources)
    """Device and processes of each timing."""
    seed: int = 0
    require_faster: bool = False
    """True if A has to be as fast as was claimed, see `is_met`."""
    against: BestConfig | None = None
    """Result whose recorded rates those of now are compared with; None for no such result."""
    max_regression: float | None = None
    """Share by which A may be slower than `against` recorded, else than B; None for no limit."""

    def is_met(self, comparison: paired.PairedComparison) -> bool:
        """Return whether the comparison bears out A.

        Against the workload's own settings, A must keep its confirmed speed-up. Against another
        configuration, and where it has none because it was edited, it must be faster.
        """
        if self.b.config is not None or self.a.config is None or self.a.is_edited:
            return comparison.is_faster
        return still_holds(comparison, self.a.confirmed)

    def speed(self, comparison: paired.PairedComparison) -> tuple[float, Interval]:
        """Return A's speed over the one that `against` recorded, else over B's, with an interval.

        The interval has the noise of both measurements, not the machine's changes in between.
        """
        if self.against is None:
            return comparison.ratio, comparison.interval
        return over_recorded(comparison.candidate, self.against.evidence.best)

    def has_regressed(self, comparison: paired.PairedComparison) -> bool:
        """Return whether A is slower by more than is allowed, and slower beyond the noise."""
        ratio, (_, high) = self.speed(comparison)
        return self.max_regression is not None and ratio < 1 - self.max_regression and high < 1

    def passes(self, comparison: paired.PairedComparison) -> bool:
        """Return whether A is as fast as the user asked for."""
        is_fast = self.is_met(comparison) or not self.require_faster
        return is_fast and not self.has_regressed(comparison)


def side_of(best: Path | None) -> Side:
    """Return the side for a best.yaml; without one, the workload's own settings.

    Raises:
        UsageError: the file is missing, not valid, or written by a newer autotune.
    """
    if best is None:
        return Side("your settings", None)
    answer = read_best(best)
    if answer.edits and not answer.keeps_baseline:
        return Side(str(best), answer.training_config, is_edited=True, best=answer)
    confirmed = None if answer.keeps_baseline else answer.evidence.speedup.ci95
    if (to_loss := answer.evidence.time_to_loss) and confirmed:
        confirmed = to_loss.throughput_ci95  # rounds tell nothing of the samples to a loss
    return Side(str(best), answer.training_config, confirmed, best=answer)


def over_recorded(
    runs: Sequence[Measurement], recorded: Throughput | Baseline
) -> tuple[float, Interval]:
    """Return the rate of these processes over a recorded one, with the interval of both."""
    rate, now = rate_of(runs)
    ratio = rate / recorded.samples_per_second
    return ratio, combined(ratio, now, recorded.ci95)


def still_holds(comparison: paired.PairedComparison, confirmed: Interval | None) -> bool:
    """Return whether rounds against the workload's own settings bear out a confirmed speed-up.

    The speed-up is gone if the whole interval lies below the confirmed one. It is also gone if the
    interval includes 1 and the ratio lies below the confirmed interval. A result that keeps
    the settings, with no interval, holds unless the rounds show it to be slower.
    """
    low, high = comparison.interval
    if confirmed is None:
        return high >= 1
    return high >= confirmed[0] and (low > 1 or comparison.ratio >= confirmed[0])


def compare(
    options: ComparisonOptions,
    runner: Runner,
    folder: Path,
    tell: Callable[[Machine, Observed, Sequence[str]], None] = lambda *_: None,
) -> Iterator[paired.PairedComparison]:
    """Yield the paired comparison of A with B after each round; only the last one decides.

    A disturbed round is void and repeated, at most as often as there are rounds. When no repeat is
    left, all rounds count. A void round adds an entry to `PairedComparison.repeated`. Before the
    first round, `tell` gets the machine, and a script's observation with notes on maps of its
    preset that are left out.

    Raises:
        UsageError: there is no such device, or a side has settings that cannot reach the workload.
        WorkloadError: the workload cannot be built, or fails with one of the configurations.
        AutotuneError: a process was lost to a fault of the machine, and lost again.
    """
    check_room(options.resources)
    place = folder / "inspect"
    found = look(options.workload, options.resources, runner, place, _wanted(options))
    a, b, course = _prepare(options, found, runner, folder)
    taken = (
        f"setting {flag.knob} through {flag.described} (--no-map prevents it)"
        for flag in found.traits.proposed
    )
    tell(found.inspected.machine, found.traits.seen, (*found.notes, *taken))
    comparison, places = paired.PairedComparison(), paired.orders(2, options.seed)
    repeats: paired.Repeats[paired.Results] = paired.Repeats(options.rounds)
    for number in count():
        order = [(b, a)[place] for place in next(places)]
        results = paired.play_round(course, order, number)
        for one, side in ((b, options.b), (a, options.a)):
            _check(results.get(one.name), side, course.folder / f"{number}-{one.name}")
        disturbance = paired.disturbance_in(results)
        counting = repeats.admit(results, disturbance)
        if not counting:
            comparison = comparison.repeating(disturbance)
        comparison = with_rounds(course, a, comparison, counting)
        yield comparison
        if len(comparison.ratios) >= options.rounds:
            return


def _prepare(
    options: ComparisonOptions, found: Looked, runner: Runner, folder: Path
) -> tuple[paired.Participant, paired.Participant, paired.Course]:
    """Return both sides and the setup of their rounds."""
    machine = found.inspected.machine
    own = TrainingConfig.of(found.traits.facts.baseline).resolved(machine)
    if options.a.config is not None and options.a.config["deterministic"]:
        own = own.replace(deterministic=True)  # as when A was confirmed
    _check_sides(options, found, own)
    a, b = (
        paired.Participant(name, (side.config or own).resolved(machine))
        for name, side in (("a", options.a), ("b", options.b))
    )
    dataset_seconds = found.inspected.dataset_seconds if found.inspected.is_shared else 0.0

    def timed(
        config: TrainingConfig, place: Path, plan: MeasurePlan, host: str | None, seed: int
    ) -> Measurement | Failure:
        job = Job(
            task=Measure(plan),
            device=machine.device,
            model_path=str(options.workload.model_path.resolve()),
            config=config.as_dict(),
            seed=seed,
            deadline_seconds=_DEADLINE_SECONDS,
            host=host,
            fresh_data=options.workload.fresh_data,
            # The script itself is left untouched under its own settings.
            script=found.traits.call(None if config == own else config),
        )
        return paired.time_in_round(runner, options.resources.started(job), place)

    return (
        a,
        b,
        paired.Course(
            time=timed,
            worth=lambda _, run: run.samples_per_second,
            baseline=b,
            folder=folder,
            seed=options.seed,
            host_seconds=found.start_seconds + dataset_seconds,
        ),
    )


def _wanted(options: ComparisonOptions) -> Wanted:
    """Return what a comparison asks of the observed run of a script: maps that its sides need."""
    sides = {side.label: side.config for side in (options.b, options.a) if side.config is not None}

    def knobs(today: TrainingConfig) -> list[str]:
        configs = sides.values()
        return [name for name in BATCH_KNOBS if any(c[name] != today[name] for c in configs)]

    flags = {
        word: label
        for label, config in sides.items()
        for word in words_of("flags", dict(config.own))
    }
    return Wanted(flags=flags, knobs=knobs)


def _check_sides(options: ComparisonOptions, found: Looked, own: TrainingConfig) -> None:
    """Raise an error if settings cannot reach the workload; all are named."""
    path, machine = options.workload.model_path, found.inspected.machine
    faults = [
        f"{side.label}: {fault}"
        for side in (options.a, options.b)
        if side.config is not None
        for fault in found.traits.faults(path, side.config.resolved(machine), own)
    ]
    if faults:
        raise UsageError("\n".join(faults))


def _check(result: Measurement | Failure | None, side: Side, folder: Path) -> None:
    """Raise an error if a side could not be timed."""
    if result is None or isinstance(result, Measurement):
        return
    if isinstance(result, Lost):
        raise AutotuneError(
            f"The run of {side.label} did not complete ({result.detail}). Rerun the command."
        )
    raise WorkloadError(
        f"the training fails with {side.label}: {describe(result)}\n"
        f"Whole log: {folder / 'stderr.log'}"
    )
