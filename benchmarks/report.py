"""What a report costs as a study grows: its page of 100 trials and of 1000, in turns.

    python benchmarks/report.py [--rounds 5] [--seed 0]

The trials are drawn from a world of worlds.py, a fifth of which crashes, and told to a study as a
search tells them. Printed: seconds of `autotune report --html` as a process of its own, those of
reading the study and of making the page, and the size of the page.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from statistics import fmean, median

import optuna
import world_tables
import worlds

from autotune.constraints import Tolerance, judge
from autotune.objectives import OBJECTIVES
from autotune.outcome import Measured, Probed, TrialOutcome
from autotune.report.data import read_report
from autotune.report.html import page
from autotune.report.source import Source
from autotune.space import SearchSpace
from autotune.tuning.running.table import Table
from autotune.tuning.session import details_of
from autotune.tuning.storing.study import TuningStudy

FEW, MANY = 100, 1000
THROUGHPUT = OBJECTIVES["throughput"]
TOLERANCE = Tolerance(0.01, relative=True)
Seconds = tuple[float, float, float]
"""Of the command, of reading the study, of making the page."""


def main() -> None:
    """Make both studies, report on each in turn, print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    print(f"{os.cpu_count()} cores, load before: {os.getloadavg()[0]:.2f}")
    table = world_tables.table_of(worlds.crashes())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        urls = {
            trials: made_study(table, trials, folder / f"{trials}.db", arguments.seed)
            for trials in (FEW, MANY)
        }
        seconds: dict[int, list[Seconds]] = {trials: [] for trials in urls}
        for _ in range(arguments.rounds):
            for trials, url in urls.items():
                seconds[trials].append(timed(url, folder / f"{trials}.html"))
        sizes = {trials: (folder / f"{trials}.html").stat().st_size for trials in urls}
    print("| trials | command, s | reading, s | page, s | page, kB |")
    print("|---|---|---|---|---|")
    medians = {
        trials: [median(part) for part in zip(*runs, strict=True)]
        for trials, runs in seconds.items()
    }
    for trials, parts in medians.items():
        print(
            f"| {trials} | {' | '.join(f'{s:.2f}' for s in parts)} | {sizes[trials] / 1000:.0f} |"
        )
    ratios = [many / few for few, many in zip(medians[FEW], medians[MANY], strict=True)]
    ratios.append(sizes[MANY] / sizes[FEW])
    print(f"| {MANY // FEW}x | {' | '.join(f'{ratio:.1f}x' for ratio in ratios)} |")


def made_study(table: Table, trials: int, path: Path, seed: int) -> str:
    """The URL of a study of so many trials of a table, the baseline first."""
    space = SearchSpace(dict(table.header.space))
    memory = optuna.create_study(direction="maximize", study_name="made")
    study = TuningStudy(memory, space, THROUGHPUT)
    qualities = {
        row.config["batch_size"]: fmean(row.outcome.qualities)
        for row in table.answers
        if isinstance(row.outcome, Probed)
    }
    configs = [config for config in table.timed if config != table.baseline]
    for config in [table.baseline, *Random(seed).sample(configs, trials - 1)]:
        row = table.timed[config][0]
        quality = qualities[config["batch_size"]]
        own = qualities[table.baseline["batch_size"]]
        outcome: TrialOutcome = row.outcome
        margin = (own - quality) / own - TOLERANCE.amount
        verdict = judge(outcome, THROUGHPUT, table.header.memory_limit_bytes, margin)
        details = details_of(outcome, row.seconds)
        if isinstance(outcome, Measured):
            details["quality"] = quality
        study.add(config, verdict, details)
    url = f"sqlite:///{path}"
    optuna.copy_study(
        from_study_name="made", from_storage=memory._storage, to_storage=url, to_study_name="made"
    )
    return url


def timed(url: str, target: Path) -> Seconds:
    """One report as a command, and its parts in this process."""
    command = [sys.executable, "-m", "autotune", "report", url, "--html", str(target), "--force"]
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    told = time.perf_counter()
    data = read_report(Source(url, None))
    read = time.perf_counter()
    page(data)
    return told - start, read - told, time.perf_counter() - read


if __name__ == "__main__":
    main()
