"""Count the trials that a search needs, by replay: real searches against recorded answers.

    python -m benchmarks.search [--samplers auto,TPESampler] [--seeds 30] [--trials 60] [TABLE ...]

A TABLE is synthetic (synthetic.py) or recorded. Each search is the real one, confirmation included,
with a runner that answers from the table. It prints per sampler and table:

- trials, the baseline's included, until a configuration within 5 % and 2 % of the feasible optimum;
- the seconds that measuring would have taken until within 5 %;
- the regret of the result, and how many results were infeasible;
- the trials in all, and their share of the space;
- of results that are not the user's settings: the median of the speed-up in best.yaml over that of
  the table, and the share of the intervals in best.yaml that have the table's in them;
- milliseconds to propose a trial.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing import Pool
from pathlib import Path
from statistics import fmean, median, quantiles

from autotune.accuracy.accuracy_verdict import SEEDS
from autotune.accuracy.numerics_verdict import NUMERICS, PRECISION, numerics_fault
from autotune.configuration.best_config import BestConfig
from autotune.configuration.constraints import Tolerance
from autotune.configuration.job import Gate
from autotune.configuration.training_config import TrainingConfig
from autotune.context.options import (
    AccuracyOptions,
    Budget,
    Resources,
    SamplingOptions,
    SearchOptions,
    StudyOptions,
    WorkloadOptions,
)
from autotune.searching.run.events import Answered, TrialEnded
from autotune.searching.search import search
from autotune.study.facts import FinishedTrial
from autotune.study.study import TuningStudy
from autotune.values.outcome import Gated, Measured, Probed
from autotune.values.statistics import bounds, resolution
from benchmarks import synthetic, synthetic_tables
from benchmarks.replay import ReplayRunner
from benchmarks.table import Table, read_table

TABLES = Path(__file__).resolve().parent.parent / "studies" / "tables"
TOLERANCE = Tolerance(0.01, relative=True)
NEAR, NEARER = 0.95, 0.98
_RECORDED_HELD_OUT = ("pendulum_ode", "plain_loop")
"""Held-out recorded tables; docs/dev/search.md says how far they were looked at."""
_REORDERING = [name for name in NUMERICS if name not in PRECISION]


@dataclass(frozen=True)
class Emitted:
    """The speed-up that best.yaml states, beside the table's."""

    over_true: float
    """The stated speed-up over the table's."""
    interval_holds: bool
    """True if the table's lies in the stated interval."""


@dataclass(frozen=True)
class Run:
    """One search against a table."""

    table: str
    trials_to_near: float
    """Trials until a share of `NEAR` of the optimum; infinite if never reached."""
    trials_to_nearer: float
    """Trials until a share of `NEARER` of the optimum; infinite if never reached."""
    regret: float
    """Regret of the result, as a share of the feasible optimum."""
    emitted_infeasible: bool
    """True if the result is infeasible by the table."""
    trials: int
    measured: float
    """Share of the space that was measured, 0 to 1."""
    seconds_to_near: float
    """Seconds that measuring would have taken until `NEAR`; infinite if never reached."""
    emitted: Emitted | None
    """What is said of the speed-up; None if the user's settings were kept."""
    ask_seconds: tuple[float, ...]
    """Seconds of each proposal."""


def main() -> None:
    """Run all searches and print a table for each sampler."""
    parser = argparse.ArgumentParser()
    every = (
        *(*synthetic.TUNED_ON, *synthetic.DECEPTIVE, *synthetic.HELD_OUT),
        *synthetic.NEWER_KNOBS,
    )
    made = [world.__name__ for world in every]
    parser.add_argument("tables", nargs="*", default=[*made, *recorded_tables()])
    parser.add_argument("--samplers", default="auto")
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--trials", type=int, default=60)
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load before: {os.getloadavg()[0]:.2f}")
    print(
        "| sampler | table | within 5 %: median, 90th, reached | within 2 % | seconds to 5 % |"
        " regret, mean | infeasible | trials | of the space |"
        " emitted over true, in interval | proposing, ms |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for sampler in arguments.samplers.split(","):
        jobs = [
            (t, sampler, s, arguments.trials)
            for t in arguments.tables
            for s in range(arguments.seeds)
        ]
        with Pool() as pool:
            runs = pool.starmap(one_search, jobs)
        for name in arguments.tables:
            print(row(sampler, name, [run for run in runs if run.table == name]), flush=True)
        for title, names in _together():
            of_these = [run for run in runs if run.table in names]
            if len({run.table for run in of_these}) > 1:
                print(row(sampler, title, of_these), flush=True)


def _together() -> list[tuple[str, set[str]]]:
    """Return groups of tables by use, with titles; the deceptive ones are in none."""
    held_out = {*_RECORDED_HELD_OUT, *(world.__name__ for world in synthetic.HELD_OUT)}
    used = {*recorded_tables(), *(world.__name__ for world in synthetic.TUNED_ON)} - held_out
    every = ("**all but the deceptive**", used | held_out)
    newer = ("**with newer knobs**", {world.__name__ for world in synthetic.NEWER_KNOBS})
    return [("**decided by**", used), ("**held out**", held_out), every, newer]


def recorded_tables() -> list[str]:
    """Return the names of the tables in studies/tables."""
    return [path.name.removesuffix(".jsonl.xz") for path in sorted(TABLES.glob("*.jsonl.xz"))]


def row(sampler: str, name: str, runs: Sequence[Run]) -> str:
    """Return a row of the table."""
    asks = [seconds for run in runs for seconds in run.ask_seconds]
    cells = [
        sampler,
        name,
        _reached([run.trials_to_near for run in runs]),
        _reached([run.trials_to_nearer for run in runs]),
        f"{median(run.seconds_to_near for run in runs):.0f}",
        f"{100 * fmean(run.regret for run in runs):.2f} %",
        str(sum(run.emitted_infeasible for run in runs)),
        f"{median(run.trials for run in runs):g}",
        f"{100 * median(run.measured for run in runs):.1f} %",
        _emitted([run.emitted for run in runs if run.emitted is not None]),
        f"{1000 * median(asks):.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def _reached(trials: Sequence[float]) -> str:
    ninetieth = (
        quantiles(sorted(trials), n=10, method="inclusive")[-1] if len(trials) > 1 else trials[0]
    )
    reached = sum(map(math.isfinite, trials)) / len(trials)
    return f"{_count(median(trials))} / {_count(ninetieth)} / {100 * reached:.0f} %"


def _emitted(results: Sequence[Emitted]) -> str:
    if not results:
        return "none"
    holding = fmean(one.interval_holds for one in results)
    return f"{median(one.over_true for one in results):.3f}, {100 * holding:.0f} %"


def _count(trials: float) -> str:
    return f"{trials:.0f}" if math.isfinite(trials) else "never"


def one_search(name: str, sampler: str, seed: int, trials: int) -> Run:
    """Run a whole search against a table."""
    truth = truth_of(name)
    asks = _timed_asks()
    runner = ReplayRunner(truth.table, seed)
    reached = {NEAR: math.inf, NEARER: math.inf}
    seconds, regret, infeasible, emitted = math.inf, 1.0, False, None
    ended: list[FinishedTrial] = []
    with tempfile.TemporaryDirectory() as folder:
        for event in search(options_for(truth, Path(folder), sampler, seed, trials), runner):
            if isinstance(event, TrialEnded):
                ended.append(event.trial)
                share = truth.share(event.trial.config)
                reached = {
                    goal: min(before, len(ended) if share >= goal else math.inf)
                    for goal, before in reached.items()
                }
                if share >= NEAR:
                    seconds = min(seconds, runner.seconds)
            if isinstance(event, Answered):
                share = truth.share(TrainingConfig.of(event.best.config))
                regret, infeasible = 1 - share, share == 0
                emitted = emitted_of(event.best, truth)
    return Run(
        table=name,
        trials_to_near=reached[NEAR],
        trials_to_nearer=reached[NEARER],
        regret=regret,
        emitted_infeasible=infeasible,
        trials=len(ended),
        measured=len(ended) / len(truth.table.timed),
        seconds_to_near=seconds,
        emitted=emitted,
        ask_seconds=tuple(asks),
    )


def emitted_of(best: BestConfig, truth: TableTruth) -> Emitted | None:
    """Return the stated speed-up beside the table's; None for the user's settings."""
    own, found = truth.share(truth.table.baseline), truth.share(TrainingConfig.of(best.config))
    if best.keeps_baseline or not (own and found):
        return None
    stated, (low, high) = best.evidence.speedup.ratio, best.evidence.speedup.ci95
    return Emitted(stated * own / found, low <= found / own <= high)


@dataclass(frozen=True)
class TableTruth:
    """A table with the worth of its configurations."""

    table: Table
    rates: dict[TrainingConfig, float]
    """Samples per second of the feasible configurations."""
    optimum: float
    """Samples per second of the best feasible configuration."""
    space_text: str
    """The table's space as a space file."""

    def share(self, config: TrainingConfig) -> float:
        """Return the rate as a share of the feasible optimum; 0 if infeasible."""
        return self.rates.get(config, 0.0) / self.optimum


@cache
def truth_of(name: str) -> TableTruth:
    """Return the synthetic or recorded table of this name, with the worth of configurations."""
    table = table_of(name)
    rates = feasible_rates(table)
    lines = [f"{k}: {_yaml(v)}" for k, v in table.header.space.items()]
    return TableTruth(
        table, rates, max(rates.values()), "portable: true\n" + "\n".join(lines) + "\n"
    )


def table_of(name: str) -> Table:
    """Return the synthetic or recorded table of this name."""
    made = getattr(synthetic, name, None)
    return synthetic_tables.table_of(made()) if made else read_table(TABLES / f"{name}.jsonl.xz")


def feasible_rates(table: Table) -> dict[TrainingConfig, float]:
    """Return the samples/s of the feasible configurations of a table."""
    trained_well, refused = set(accurate(table)), set(_refused(table))
    rates = {}
    for config, answers in table.timed.items():
        rate = table.rate(config)
        trained = config.replace(**{name: table.baseline[name] for name in _REORDERING})
        if (
            rate is None
            or trained.quality_key() not in trained_well
            or _numerics(config) in refused
        ):
            continue
        if all(_peak(a.outcome) <= table.header.memory_limit_bytes for a in answers):
            rates[config] = rate
    return rates


def _peak(outcome: object) -> int:
    return outcome.measurement.peak_memory_bytes if isinstance(outcome, Measured) else 0


def accurate(table: Table) -> Iterator[str]:
    """Yield the keys of the trainings that all recorded seeds together show to be accurate enough.

    A good mean is not enough, because it may be chance and no search could confirm it.
    """
    own = _qualities(table)[table.baseline.quality_key()]
    allowed = TOLERANCE.absolute(own[: len(SEEDS)], table.untrained)
    for key, losses, step in _losses(table):
        _, high = bounds(losses, step)
        if high <= allowed or key == table.baseline.quality_key():
            yield key


def _losses(table: Table) -> Iterator[tuple[str, list[float], float]]:
    """Yield the key of each training, its losses to the baseline seed by seed, and their step."""
    probes = _qualities(table)
    own = probes[table.baseline.quality_key()]
    sign = 1 if table.header.workload.has_evaluate else -1
    for key, qualities in probes.items():
        losses = [sign * (b - q) for b, q in zip(own, qualities, strict=False)]
        yield key, losses, resolution((*own, *qualities))


def _qualities(table: Table) -> dict[str, tuple[float, ...]]:
    return {
        key: row.outcome.qualities
        for key, row in table.probed.items()
        if isinstance(row.outcome, Probed)
    }


def _refused(table: Table) -> Iterator[tuple[object, ...]]:
    """Yield the numerics that fail their check."""
    for row in table.answers:
        if not isinstance(row.task, Gate):
            continue
        config, reference = TrainingConfig.of(row.config), row.task.reference
        lower = any(config[name] != reference.get(name) for name in PRECISION)
        if not isinstance(row.outcome, Gated) or numerics_fault(row.outcome, lower):
            yield _numerics(config)


def _numerics(config: TrainingConfig) -> tuple[object, ...]:
    return tuple(config[name] for name in NUMERICS)


def _yaml(values: Sequence[object]) -> str:
    words = {None: "null", True: "true", False: "false"}
    spelt = [words[v] if v is None or isinstance(v, bool) else str(v) for v in values]
    return f"[{', '.join(spelt)}]"


def options_for(
    truth: TableTruth, folder: Path, sampler: str, seed: int, trials: int | None
) -> SearchOptions:
    """Return the options of a search of the table's space, with all its files in `folder`."""
    space = folder / "space.yaml"
    space.write_text(truth.space_text, encoding="utf-8")
    return SearchOptions(
        workload=WorkloadOptions(model_path=space),  # only its digest is read
        study=StudyOptions(name="replay", storage=None, folder=folder, out=folder / "best.yaml"),
        budget=Budget(trials=trials),
        accuracy=AccuracyOptions(tolerance=TOLERANCE),
        resources=Resources(memory_limit_bytes=truth.table.header.memory_limit_bytes),
        sampling=SamplingOptions(space=str(space), sampler=sampler, seed=seed),
    )


def _timed_asks() -> list[float]:
    """Patch `TuningStudy.ask`; return a list that receives the seconds of each proposal."""
    seconds: list[float] = []
    ask = getattr(TuningStudy.ask, "plain", TuningStudy.ask)

    def timed(self: TuningStudy, wanted: TrainingConfig | None = None) -> object:
        start = time.perf_counter()
        try:
            return ask(self, wanted)
        finally:
            seconds.append(time.perf_counter() - start)

    timed.plain = ask  # type: ignore[attr-defined]
    TuningStudy.ask = timed  # type: ignore[assignment,method-assign]
    return seconds


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    main()
