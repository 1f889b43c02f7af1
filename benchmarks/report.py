"""Measure the cost of a report for studies of 100 and of 1000 trials, in turns.

    python -m benchmarks.report [--rounds 5] [--seed 0]

The trials are drawn from a synthetic table of synthetic.py, a fifth of which crashes. They are told
to a study as a search tells them. The table has the size of the page and three times in seconds: of
`autotune report --html` as a process, of reading the study, and of making the page.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import fmean, median

import optuna

from autotune.configuration.constraints import THROUGHPUT, Tolerance, judge
from autotune.configuration.search_space import SearchSpace
from autotune.report.data import read_report
from autotune.report.html import page
from autotune.searching.run.search_run import details_of
from autotune.study.archive import StudyPlace
from autotune.study.study import open_study
from autotune.values.outcome import Measured, Probed, TrialOutcome
from benchmarks import synthetic, synthetic_tables
from benchmarks.table import Table

FEW, MANY = 100, 1000
TOLERANCE = Tolerance(0.01, relative=True)
Seconds = tuple[float, float, float]
"""Seconds of the command, of reading the study, and of making the page."""


def main() -> None:
    """Make both studies, report on each in turn, print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    print(f"{os.cpu_count()} cores, load before: {os.getloadavg()[0]:.2f}")
    table = synthetic_tables.table_of(synthetic.crashes())
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
    """Make a study with trials drawn from a table, the baseline first; return its URL."""
    space, url = SearchSpace(dict(table.header.space)), f"sqlite:///{path}"
    study = open_study("made", url, space, THROUGHPUT)
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
            details = replace(details, quality=quality)
        study.add(config, verdict, details)
    study.disconnect()
    return url


def timed(url: str, target: Path) -> Seconds:
    """Time one report as a command, and its parts in this process."""
    command = [sys.executable, "-m", "autotune", "report", url, "--html", str(target), "--force"]
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    told = time.perf_counter()
    data = read_report(StudyPlace(url, None))
    read = time.perf_counter()
    page(data)
    return told - start, read - told, time.perf_counter() - read


if __name__ == "__main__":
    main()
