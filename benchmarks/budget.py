"""Check that replayed searches keep to their time budget, and print their results.

    python -m benchmarks.budget [--seconds 360] [--seeds 10] [--evaluation 12] [--dataset 10]
        [TABLE ...]

The clock of a search shows the seconds that measuring would have taken so far. The table has, per
recorded table, when searches ended, how many kept the user's settings, how many ended without a
result, and the mean regret. In the regret, a search without a result counts as one that kept them.
`--evaluation` and `--dataset` add seconds: to each accuracy seed, and to each process, which builds
its dataset itself.
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

from autotune.configuration.job import Job
from autotune.configuration.training_config import TrainingConfig
from autotune.searching.run.events import Answered
from autotune.searching.search import search
from autotune.values.errors import NotSearchedEnoughError
from autotune.values.outcome import Inspected, Measured, Probed, TrialOutcome
from benchmarks.replay import ReplayRunner
from benchmarks.search import options_for, recorded_tables, truth_of
from benchmarks.table import Table


def main() -> None:
    """Run all searches and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tables", nargs="*", default=recorded_tables())
    parser.add_argument("--seconds", type=float, default=360.0)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--evaluation", type=float, default=0.0, help="more seconds of a seed")
    parser.add_argument("--dataset", type=float, default=0.0, help="more seconds of a process")
    arguments = parser.parse_args()
    print("| table | ended: least, median, most | kept settings, not enough | regret, mean |")
    print("|---|---|---|---|")
    for table in arguments.tables:
        more = arguments.evaluation, arguments.dataset
        jobs = [(table, arguments.seconds, seed, *more) for seed in range(arguments.seeds)]
        with Pool() as pool:
            ended, answers, shares = zip(*pool.starmap(one_search, jobs), strict=True)
        spread = f"{min(ended):.0f}, {median(ended):.0f}, {max(ended):.0f} s"
        kept, unsaid = (answers.count(answer) for answer in ("keep", "not searched enough"))
        regret = 100 * (1 - fmean(shares))
        print(f"| {table} | {spread} | {kept}, {unsaid} | {regret:.1f} % |", flush=True)


class DearRunner(ReplayRunner):
    """A runner whose seeds and processes take more seconds than were recorded."""

    def __init__(self, table: Table, seed: int, evaluation: float, dataset: float) -> None:
        super().__init__(table, seed)
        self._evaluation, self._dataset = evaluation, dataset

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """Return a recorded outcome of `job`, with more seconds."""
        outcome, more = super().run(job, folder), self._dataset
        match outcome:
            case Inspected():
                outcome = replace(outcome, dataset_seconds=self._dataset)
            case Probed():
                more += self._evaluation * len(outcome.qualities)
                outcome = replace(outcome, seconds=outcome.seconds + more)
            case Measured(run):
                build = run.build_seconds + self._dataset
                outcome = Measured(replace(run, build_seconds=build))
        self.seconds += more
        return outcome


def one_search(
    table: str, seconds: float, seed: int, evaluation: float = 0.0, dataset: float = 0.0
) -> tuple[float, str, float]:
    """Run one search; return its seconds, its answer, and the answer's share of the optimum."""
    truth = truth_of(table)
    runner = DearRunner(truth.table, seed, evaluation, dataset)
    begun = time.monotonic()
    set_clock(SimpleNamespace(**{**vars(time), "monotonic": lambda: begun + runner.seconds}))
    with tempfile.TemporaryDirectory() as folder:
        options = options_for(truth, Path(folder), "auto", seed, None)
        options = replace(options, budget=replace(options.budget, seconds=seconds))
        try:
            *_, last = search(options, runner)
        except NotSearchedEnoughError:
            return runner.seconds, "not searched enough", truth.share(truth.table.baseline)
        assert isinstance(last, Answered), last
        share = truth.share(TrainingConfig.of(last.best.config))
        return runner.seconds, "keep" if last.best.keeps_baseline else "faster", share


_SEARCH = (
    *("autotune.accuracy.", "autotune.comparison.", "autotune.context.", "autotune.process.stop"),
    *("autotune.searching.", "autotune.study."),
)


def set_clock(clock: SimpleNamespace) -> None:
    """Replace the clock in every module of the search that reads one."""
    for name, module in list(sys.modules.items()):
        if name.startswith(_SEARCH) and hasattr(module, "time"):
            module.time = clock  # type: ignore[attr-defined]


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    main()
