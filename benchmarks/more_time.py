"""Check that more time never gives less: replayed searches with several budgets and spaces.

    python -m benchmarks.more_time [--seconds 60,120,...] [--spaces quick,default,full] [--seeds 30]
        [--out FILE] [--first] [TABLE ...]

Each search is the real one with a clock that shows the seconds that measuring would have taken. A
table of the output has the mean worth of the answers: their true rate over that of the best
feasible configuration of all the spaces. A search that keeps the user's settings, or ends without
a result, is worth what those are. A synthetic workload answers for any configuration. Of a
recorded table a space has the values that were recorded. Searches that `--out` already has are not
run again.

With --first, searches end after two trials, and the table has what these are: the true rate over
that of the user's settings, the number of settings changed, the compile mode and the seconds. They
are medians over the seeds, and the most frequent mode.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import tempfile
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import Pool
from pathlib import Path
from statistics import median, mode
from types import SimpleNamespace

from autotune.configuration.search_space import find_space, read_space
from autotune.configuration.training_config import TrainingConfig
from autotune.context.options import Budget
from autotune.knobs import KNOBS
from autotune.searching.run.events import Answered, Event, TrialEnded, TrialStarted
from autotune.searching.search import search
from autotune.values.errors import NotSearchedEnoughError
from benchmarks import synthetic
from benchmarks.budget import set_clock
from benchmarks.laws import REFERENCE_QUALITY, Truth
from benchmarks.replay import ReplayRunner
from benchmarks.search import TableTruth, options_for, truth_of
from benchmarks.synthetic import SyntheticWorkload
from benchmarks.synthetic_tables import (
    LIMIT_GIB,
    diagnosis_rows,
    gate_row,
    header_of,
    probed_row,
    timed_row,
)
from benchmarks.table import Row, Table
from benchmarks.worth import DECIDED_BY, HELD_OUT, read_worths, rows

Job = tuple[str, str, int, int]
"""Table, space, seconds and seed of a search."""
SECONDS = (60, 120, 240, 360, 600, 1200)
SPACES = ("quick", "default", "full")
# Losses of the laws are 0 or well above the tolerance of 1 %.
_MOST_LOSS = 0.005
_FIRST = 2
"""Trials that --first shows."""
_OF_LAWS = (
    "batch_size",
    "num_workers",
    "amp_dtype",
    "float32_matmul_precision",
    "compile_mode",
    "channels_last",
    "activation_checkpointing",
)
"""Knobs on which some law depends in more than one way."""
_NEVER_WORSE = {
    "prefetch_factor": 4,
    "pin_memory": True,
    "cudnn_benchmark": True,
    "optimizer_impl": "fused",
    "in_order": False,
    "sdpa_backend": "cudnn",
    "cpu_allocator": "jemalloc",
    "merge_param_groups": True,
}
"""Values of the other knobs that no law makes slower or larger, whatever the rest is."""


@dataclass(frozen=True)
class Found:
    """The answer of one search."""

    share: float
    """Its true rate over that of the best configuration."""
    answer: str
    ended: float
    """Seconds after which the search was over."""
    trials: int


class LawRunner(ReplayRunner):
    """A runner that answers for any configuration by the law of a synthetic workload."""

    def __init__(self, world: SyntheticWorkload, table: Table, seed: int) -> None:
        super().__init__(table, seed, caches=True)
        self._world = world

    def timings_of(self, config: TrainingConfig) -> Sequence[Row]:
        """Return the only timing of a configuration."""
        return (timed_row(self._world, config, self._world.law(config)),)

    def rate_of(self, config: TrainingConfig) -> float | None:  # noqa: ARG002
        """Return None: the only timing is the true rate."""
        return None

    def probe_of(self, config: TrainingConfig) -> Row:
        """Return the probe of a configuration."""
        return probed_row(config, self._world.law(config))

    def gate_of(self, config: TrainingConfig) -> Row:
        """Return the numerics check of a configuration, which agrees."""
        return gate_row(config)


@dataclass(frozen=True)
class Workload:
    """A recorded table or a synthetic workload, in whichever space."""

    name: str

    @property
    def world(self) -> SyntheticWorkload | None:
        """The definition of a synthetic workload; None for a recorded table."""
        made = getattr(synthetic, self.name, None)
        return None if made is None else made()

    @property
    def table(self) -> Table:
        """The recorded table, or one with little more than a header."""
        world = self.world
        if world is None:
            return truth_of(self.name).table
        header = header_of(world)
        return Table(header, tuple(diagnosis_rows(world, TrainingConfig.of(header.baseline))))

    def runner(self, seed: int) -> ReplayRunner:
        """Return a runner for one search."""
        world = self.world
        if world is None:
            return ReplayRunner(self.table, seed, caches=True)
        return LawRunner(world, self.table, seed)

    def share(self, config: TrainingConfig) -> float:
        """Return the rate as a share of the best feasible one; 0 if infeasible."""
        world = self.world
        if world is None:
            return truth_of(self.name).share(config)
        return _worth(world.law(config)) / _optimum(self.name)

    def space_text(self, space: str) -> str:
        """Return a shipped space as a space file, with the values that there are answers for."""
        path = find_space(space)
        if self.world is not None:
            return path.read_text(encoding="utf-8")
        file, header = read_space(path), self.table.header
        lines = [f"portable: true\ntrials: {file.trials}"]
        if file.first is not None:
            lines.append(f"first: {file.first.name}")
        for name, known in header.space.items():
            offered = {
                KNOBS[name].resolve(value, header.machine) for value in file.offers.get(name, ())
            }
            if values := [value for value in known if value in offered]:
                lines.append(f"{name}: {json.dumps(values)}")
        return "\n".join(lines) + "\n"


def main() -> None:
    """Run all searches and print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tables", nargs="*", default=[*DECIDED_BY, *HELD_OUT])
    parser.add_argument("--seconds", default=",".join(map(str, SECONDS)))
    parser.add_argument("--spaces", default=",".join(SPACES))
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--out", type=Path, help="append the answers to this file, as JSON lines")
    parser.add_argument("--first", action="store_true", help="show the first two trials alone")
    arguments = parser.parse_args()
    budgets, spaces = [int(s) for s in arguments.seconds.split(",")], arguments.spaces.split(",")
    for table in arguments.tables:
        Workload(table).share(TrainingConfig.of(Workload(table).table.header.baseline))
    jobs = list(itertools.product(arguments.tables, spaces, budgets, range(arguments.seeds)))
    if arguments.first:
        _print_first(jobs, arguments.seeds)
        return
    out = arguments.out or Path(tempfile.mkdtemp()) / "answers.jsonl"
    done = read_worths(out) if out.exists() else {}
    jobs = [job for job in jobs if job[3] not in done.get(job[:3], {})]
    with Pool() as pool:
        for table in arguments.tables:
            of_table = [job for job in jobs if job[0] == table]
            _append(
                out, zip(of_table, pool.starmap(one_search, of_table, chunksize=1), strict=True)
            )
            print(f"{table}: {len(of_table)} searches", flush=True)
    for row in rows(read_worths(out)):
        print(f"| {' | '.join(row)} |")


def _append(out: Path, answers: Iterable[tuple[Job, Found]]) -> None:
    """Append searches and their answers to a file, as JSON lines."""
    with out.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps([*job, *vars(one).values()]) + "\n" for job, one in answers)


@dataclass(frozen=True)
class Proposal:
    """One of the first trials of a search."""

    gain: float
    """Its true rate over that of the user's settings; 0 if it is infeasible."""
    changed: int
    """Settings that differ from the user's."""
    mode: str
    """Compile mode; `no` where nothing is compiled."""
    seconds: float
    """Seconds of the trial, with judging its accuracy."""


def _print_first(jobs: Sequence[tuple[str, str, float, int]], seeds: int) -> None:
    """Print the first two proposals of each table and space, over all seeds."""
    with Pool() as pool:
        found = pool.starmap(first_proposals, jobs, chunksize=1)
    columns = "rate | settings | compiled | seconds"
    print(f"| table | space | budget | first: {columns} | second: {columns} |")
    print(f"|---|---|---|{'---|' * 8}")
    for at in range(0, len(jobs), seeds):
        table, space, seconds, _ = jobs[at]
        cells = [cell for one in zip(*found[at : at + seeds], strict=True) for cell in _told(one)]
        print(f"| {table} | {space} | {seconds} s | {' | '.join(cells)} |", flush=True)


def _told(found: Sequence[Proposal]) -> tuple[str, str, str, str]:
    """Return the cells of one proposal over all seeds."""
    return (
        f"{median(one.gain for one in found):.2f}",
        f"{median(one.changed for one in found):g}",
        mode(one.mode for one in found),
        f"{median(one.seconds for one in found):.0f}",
    )


def first_proposals(table: str, space: str, seconds: float, seed: int) -> list[Proposal]:
    """Return the first two trials of a search."""
    workload = Workload(table)
    runner, own = workload.runner(seed), workload.table.baseline
    reference, found, begun = workload.share(own), [], 0.0
    with closing(_events(workload, runner, space, seconds, seed)) as events:
        for event in events:
            if isinstance(event, TrialStarted):
                begun = runner.seconds
            elif isinstance(event, TrialEnded) and event.trial.number:
                config = event.trial.config
                changed = sum(config[name] != own[name] for name in config.as_dict())
                gain, compiled = workload.share(config) / reference, config["compile_mode"]
                taken = runner.seconds - begun
                found.append(Proposal(gain, changed, str(compiled or "no"), taken))
                if len(found) == _FIRST:
                    break
    return found


def one_search(table: str, space: str, seconds: float, seed: int) -> Found:
    """Run one search of a space with a time budget."""
    workload = Workload(table)
    runner, own = workload.runner(seed), workload.table
    try:
        *_, last = _events(workload, runner, space, seconds, seed)
    except NotSearchedEnoughError as error:
        worth = workload.share(own.baseline)
        return Found(worth, "not searched enough", runner.seconds, error.measured)
    assert isinstance(last, Answered), last
    share = workload.share(TrainingConfig.of(last.best.config))
    answer = "keep" if last.best.keeps_baseline else "faster"
    searched = last.best.evidence.searched
    return Found(share, answer, runner.seconds, 0 if searched is None else searched.measured)


def _events(
    workload: Workload, runner: ReplayRunner, space: str, seconds: float, seed: int
) -> Generator[Event, None, None]:
    """Search, with a clock that shows the seconds of the runner."""
    truth = TableTruth(workload.table, {}, 1.0, workload.space_text(space))
    begun = time.monotonic()
    set_clock(SimpleNamespace(**{**vars(time), "monotonic": lambda: begun + runner.seconds}))
    with tempfile.TemporaryDirectory() as folder:
        options = options_for(truth, Path(folder), "auto", seed, trials=1)
        yield from search(replace(options, budget=Budget(seconds=seconds)), runner)


def _worth(truth: Truth) -> float:
    """Return the rate in samples/s; 0 if the configuration is infeasible."""
    worse = truth.quality < REFERENCE_QUALITY - _MOST_LOSS
    return 0.0 if truth.crash or worse or truth.memory_gib > LIMIT_GIB else truth.rate


@cache
def _optimum(name: str) -> float:
    """Return the highest feasible rate of a synthetic workload in any of the spaces."""
    world = getattr(synthetic, name)()
    offers = [read_space(find_space(space)).offers for space in SPACES]
    own: Mapping[str, object] = TrainingConfig.of(header_of(world).baseline).as_dict()
    values = {
        name: dict.fromkeys([own[name], *(v for offer in offers for v in offer.get(name, ()))])
        for name in _OF_LAWS
    }
    best = {n: v for n, v in _NEVER_WORSE.items() if any(v in o.get(n, ()) for o in offers)}
    if not world.has_blocks:
        values["activation_checkpointing"] = {False: None}
    choices = itertools.product(*values.values())
    configs = ({**own, **best, **dict(zip(values, choice, strict=True))} for choice in choices)
    return max(_worth(world.law(config)) for config in configs)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    main()
