"""Whether a search ends when its time is up, and with what: by replay, whose clock is the search's.

    python benchmarks/budget.py [--seconds 360] [--seeds 10] [TABLE ...]

A search that reads the clock is told the seconds that measuring would have taken so far. Printed
per recorded table: when searches ended, how often they kept the user's settings, and their regret,
for which those count with what their settings are worth.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import replace
from multiprocessing import Pool
from pathlib import Path
from statistics import fmean, median
from types import SimpleNamespace

from search import options_for, recorded_tables, truth_of

from autotune.config import TrainingConfig
from autotune.tuning.events import Answered
from autotune.tuning.running.replay import ReplayRunner
from autotune.tuning.search import search

_NO_LIMIT = 1000
"""Of trials."""


def main() -> None:
    """Run all searches and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tables", nargs="*", default=recorded_tables())
    parser.add_argument("--seconds", type=float, default=360.0)
    parser.add_argument("--seeds", type=int, default=10)
    arguments = parser.parse_args()
    print("| table | ended after: least, median, most | kept their settings | regret, mean |")
    print("|---|---|---|---|")
    for table in arguments.tables:
        jobs = [(table, arguments.seconds, seed) for seed in range(arguments.seeds)]
        with Pool() as pool:
            ended, kept, shares = zip(*pool.starmap(one_search, jobs), strict=True)
        spread = f"{min(ended):.0f}, {median(ended):.0f}, {max(ended):.0f} s"
        regret = 100 * (1 - fmean(shares))
        print(f"| {table} | {spread} | {sum(kept)} of {len(kept)} | {regret:.1f} % |", flush=True)


def one_search(table: str, seconds: float, seed: int) -> tuple[float, bool, float]:
    """When it ended, whether it kept the baseline, and what its answer is worth of the optimum."""
    truth = truth_of(table)
    runner = ReplayRunner(truth.table, seed)
    begun = time.monotonic()
    _set_clock(SimpleNamespace(**{**vars(time), "monotonic": lambda: begun + runner.seconds}))
    with tempfile.TemporaryDirectory() as folder:
        options = options_for(truth, Path(folder), "auto", seed, _NO_LIMIT)
        for event in search(replace(options, time_budget_seconds=seconds), runner):
            if isinstance(event, Answered):
                share = truth.share(TrainingConfig.of(event.best.config))
                return runner.seconds, event.best.keeps_baseline, share
    raise RuntimeError(f"{table}, seed {seed}: no answer")


def _set_clock(clock: SimpleNamespace) -> None:
    """In every module of the search that reads one."""
    for name, module in list(sys.modules.items()):
        if name.startswith("autotune.tuning") and hasattr(module, "time"):
            module.time = clock  # type: ignore[attr-defined]


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    main()
