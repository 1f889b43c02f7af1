"""Seconds to an answer, and what it is worth: searches that may end early, and whole budgets.

    python -m benchmarks.time_to_answer [--seconds 360] [--seeds 10] [--save] [TABLE ...]
    python -m benchmarks.time_to_answer --real MODEL_OR_SCRIPT [WORDS ...]

A TABLE is recorded or synthetic; its searches are replays, with a clock that shows the seconds that
measuring would have taken. The first table has, for each of them, the median end and the mean worth
of the answers, beside those of searches that use all of their time, because they were given a
number of trials. The worth is the true rate over that of the best feasible configuration. A search
that kept the settings, or ended without an answer, is worth what these are. The second table has
the mean seconds of each part of a search.

With --real, one search is run both ways by the command line, on an idle machine, and the parts are
told from the files that its processes left, as `benchmarks.zoo.spent` does for any study.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from multiprocessing import Pool
from pathlib import Path
from statistics import fmean, median
from types import SimpleNamespace
from typing import Any

from autotune.configuration.job import Job
from autotune.configuration.training_config import TrainingConfig
from autotune.searching.run.events import Answered
from autotune.searching.search import search
from autotune.values.errors import NotSearchedEnoughError
from autotune.values.outcome import TrialOutcome
from benchmarks.budget import set_clock
from benchmarks.replay import ReplayRunner
from benchmarks.search import options_for, recorded_tables, truth_of
from benchmarks.table import Table
from benchmarks.zoo.spent import processes, rows

FOR_EVER = 100_000
"""More trials than any time budget has room for; a search for so many uses all of its time."""
_PARTS = {
    "inspect": "start",
    "batches": "start",
    "0000": "baseline",
    "diagnosis": "diagnosis",
    "accuracy": "seeds",
    "gates": "checks",
    "anchors": "drift",
    "confirm": "rounds",
    "arithmetic": "arithmetic",
}
"""Part of a search by the folder of a process, below the study's `trials`; others are trials."""
PARTS = (*dict.fromkeys(_PARTS.values()), "trials")
RESULTS = Path(__file__).parent / "results"
KINDS = {"whole budget": FOR_EVER, "ended early": None}
"""Kinds of searches, each with the number of trials that it is given."""


@dataclass(frozen=True)
class Ended:
    """One search: when it ended and what its answer is worth."""

    seconds: float
    answer: str
    """`faster`, `keep` or `none`."""
    share: float
    """The answer's true rate over that of the best feasible configuration."""
    parts: Mapping[str, float]
    """Seconds of each part."""
    changed: int
    """Settings of the answer that differ from the user's."""


class PartsRunner(ReplayRunner):
    """A runner that adds up the seconds of each part of a search."""

    def __init__(self, table: Table, seed: int, trials: Path) -> None:
        super().__init__(table, seed, caches=True)
        self._trials = trials
        self.parts: Counter[str] = Counter()

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """Return a recorded outcome of `job`."""
        before = self.seconds
        outcome = super().run(job, folder)
        self.parts[part_of(folder, self._trials)] += self.seconds - before
        return outcome


def part_of(folder: Path, trials: Path) -> str:
    """Return the part of a search to which the folder of a process belongs."""
    return _PARTS.get(folder.relative_to(trials).parts[0], "trials")


def one_search(table: str, seconds: float, seed: int, trials: int | None) -> Ended:
    """Replay one search; it uses all of its time if it is given a number of `trials`."""
    truth = truth_of(table)
    own = truth.table.baseline
    with tempfile.TemporaryDirectory() as folder:
        runner = PartsRunner(truth.table, seed, Path(folder, "trials"))
        begun = time.monotonic()
        set_clock(SimpleNamespace(**{**vars(time), "monotonic": lambda: begun + runner.seconds}))
        options = options_for(truth, Path(folder), "auto", seed, trials)
        options = replace(options, budget=replace(options.budget, seconds=seconds))
        config, answer = own, "none"
        try:
            *_, last = search(options, runner)
            assert isinstance(last, Answered), last
            config = TrainingConfig.of(last.best.config)
            answer = "keep" if last.best.keeps_baseline else "faster"
        except NotSearchedEnoughError:
            pass
    changed = len(config.differences(own))
    return Ended(runner.seconds, answer, truth.share(config), dict(runner.parts), changed)


def replayed(tables: Sequence[str], seconds: float, seeds: int) -> list[dict[str, Any]]:
    """Replay searches of both kinds; return both tables."""
    jobs = [(t, seconds, s, kind) for t in tables for kind in KINDS.values() for s in range(seeds)]
    for table in tables:
        truth_of(table)
    with Pool() as pool:
        ended = pool.starmap(one_search, jobs, chunksize=1)
    found = {
        kind: {
            table: [
                one for job, one in zip(jobs, ended, strict=True) if job[::3] == (table, trials)
            ]
            for table in tables
        }
        for kind, trials in KINDS.items()
    }
    groups = [*((table, [table]) for table in tables), ("**all**", tables)]
    rows = [
        _row(title, *([one for name in names for one in of[name]] for of in found.values()))
        for title, names in groups
    ]
    parts = [
        _parts_row(kind, [one for group in of.values() for one in group])
        for kind, of in found.items()
    ]
    return [
        {
            "title": "Seconds to an answer, by replay",
            "about": f"Replay with a clock, {seeds} searches a cell with {seconds:.0f} s at most. "
            "A cell has the median end, the mean worth of the answers, those that kept the "
            "settings or ended without an answer, and the mean number of settings changed. The "
            "whole budget: the searches were given a number of trials that it has no room for.",
            "columns": ["table", *KINDS, "seconds", "worth"],
            "rows": rows,
        },
        {
            "title": "Where the seconds go, by replay",
            "about": "Mean seconds of the same searches.",
            "columns": ["search", *PARTS, "in all"],
            "rows": parts,
        },
    ]


def _row(name: str, whole: Sequence[Ended], early: Sequence[Ended]) -> list[str]:
    seconds = [median(one.seconds for one in group) for group in (whole, early)]
    worths = [fmean(one.share for one in group) for group in (whole, early)]
    cells = [
        f"{taken:.0f} s, {100 * worth:.1f} %, {sum(one.answer != 'faster' for one in group)} of "
        f"{len(group)}, {fmean(one.changed for one in group):.1f}"
        for taken, worth, group in zip(seconds, worths, (whole, early), strict=True)
    ]
    return [name, *cells, *(f"{100 * new / old:.0f} %" for old, new in (seconds, worths))]


def _parts_row(kind: str, searches: Sequence[Ended]) -> list[str]:
    means = [fmean(one.parts.get(part, 0.0) for one in searches) for part in PARTS]
    return [kind, *(f"{each:.0f}" for each in (*means, sum(means)))]


def show(tables: Sequence[dict[str, Any]], *, save: bool) -> None:
    """Print tables, or write them for docs/benchmarks.md."""
    for name, table in zip(("time_to_answer", "time_to_answer_parts"), tables, strict=True):
        if save:
            more = {"machine": "seconds are those of the tables", "load": "no effect on a replay"}
            date = str(datetime.now(UTC).date())
            now = {"command": "python -m benchmarks.time_to_answer --save", "recorded": date}
            text = json.dumps({**table, **now, **more}, indent=1, ensure_ascii=False)
            (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        for row in (table["columns"], ["---"] * len(table["columns"]), *table["rows"]):
            print(f"| {' | '.join(row)} |")
        print()


def real(words: Sequence[str], seconds: float) -> None:
    """Search a workload both ways by the command line; print what was found and the parts."""
    path = str(Path(words[0]).resolve())
    for name, trials in KINDS.items():
        more = [] if trials is None else ["--trials", str(trials)]
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "autotune", "search", path, "--study", "timed"]
            command += ["--time-budget", f"{seconds:.0f}s", "--progress", "none", "--json", *more]
            start = time.perf_counter()
            done = subprocess.run(
                [*command, *words[1:]], cwd=folder, capture_output=True, text=True, check=False
            )
            taken = time.perf_counter() - start
            print(f"\n{name}: {taken:.0f} s, {_answer(done.stdout)}\n")
            print("| what | processes | seconds | share |\n|---|---|---|---|")
            left = Path(folder, "studies", "timed", "trials")
            for row in rows(sorted(processes(left))):
                print(f"| {' | '.join(row)} |", flush=True)


def _answer(stdout: str) -> str:
    told = json.loads(stdout) if stdout.strip() else {"answer": "none"}
    if "best" not in told or told["answer"] == "keep":
        return str(told["answer"])
    speedup = told["best"]["evidence"]["speedup"]
    return f"{speedup['ratio']:.2f}x ({speedup['rounds']} rounds)"


def main() -> None:
    """Run the searches that are asked for and print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tables", nargs="*")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--seconds", type=float, default=360.0)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--real", nargs=argparse.REMAINDER, help="search by the command line")
    arguments = parser.parse_args()
    if arguments.real:
        real(arguments.real, arguments.seconds)
    else:
        tables = arguments.tables or recorded_tables()
        show(replayed(tables, arguments.seconds, arguments.seeds), save=arguments.save)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    main()
