"""Measure the speed-up of 1, 2, 4 and 8 workers on a study of replayed trials in PostgreSQL.

    python -m benchmarks.scaling [--storage URL] [--workers 1,2,4,8] [--seconds 5] [--trials 8]

Each worker is a process: the first runs `autotune.searching.search.search`, the others
`autotune.searching.trials.workers.join`, as the commands do. Their runners answer from a synthetic
table and sleep for the seconds of a trial; other jobs are answered at once. The trials per worker
are the same for each number of workers, so the ideal is the time of one worker. The table has the
speed-up, and how many trials were lost or measured twice. In a last study, two workers are killed
midway. Without --storage, a temporary server is started.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from multiprocessing.context import SpawnProcess
from pathlib import Path
from secrets import token_hex
from typing import Any

import optuna
from optuna.trial import TrialState

from autotune.configuration.job import Inspect, Job, Measure
from autotune.context.options import SearchOptions, WorkloadOptions
from autotune.process.devices import Device
from autotune.process.stop import Stop
from autotune.searching.search import search
from autotune.searching.trials.workers import WorkerOptions, join
from autotune.values.outcome import Inspected, TrialOutcome
from benchmarks.replay import ReplayRunner
from benchmarks.search import options_for, truth_of

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

from postgres import create_database, running_server

WORLD = "tabular"
SAMPLER = "RandomSampler"
KILLED = 2


@dataclass
class SleepingRunner(ReplayRunner):
    """A replay runner that sleeps during trials, with a device number of its own."""

    number: int
    trial_seconds: float
    together: Any
    """Barrier at which the first trial of each worker waits for the others."""
    began: Any
    """Shared value: Unix time at which all had reached the barrier."""
    started: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        super().__init__(truth_of(WORLD).table, seed=self.number)

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """Return the recorded outcome, after the seconds of a trial."""
        outcome = super().run(job, folder)
        if isinstance(job.task, Inspect):
            assert isinstance(outcome, Inspected)
            return replace(outcome, machine=replace(outcome.machine, device=f"cuda:{self.number}"))
        if isinstance(job.task, Measure) and folder.parent.name == "trials":
            if not self.started:
                self.started = True
                self.together.wait()
                self.began.value = time.time()
            time.sleep(self.trial_seconds)
        return outcome


@dataclass(frozen=True)
class Result:
    """Result of one study."""

    workers: int
    seconds: float
    """Seconds from the start of the first trials to the end of the last one."""
    trials: int
    """Number of trials that were asked for."""
    told: int
    """Number of trials that were finished."""
    doubled: int
    """Number of trials whose configuration was already finished in another."""
    given_up: int
    """Number of trials that failed."""


def main() -> None:
    """Run all studies and print a line for each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--storage", help="URL of a PostgreSQL server, without a database")
    parser.add_argument("--workers", default="1,2,4,8")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--trials", type=int, default=8, help="trials per worker")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = arguments.storage or stack.enter_context(running_server())
        print("| workers | seconds | speed-up | efficiency | trials | lost | doubled | given up |")
        print("|---|---|---|---|---|---|---|---|")
        alone = 0.0
        numbers = [int(number) for number in arguments.workers.split(",")]
        for workers, kill in [*((number, 0) for number in numbers), (numbers[-1], KILLED)]:
            if workers <= kill:
                continue
            run = one_study(server, folder, workers, kill, arguments)
            alone = alone or run.seconds / run.workers * numbers[0]
            print(line(run, alone, kill), flush=True)


def line(run: Result, alone: float, kill: int) -> str:
    """Return a row of the table."""
    efficiency = alone / run.seconds
    cells = [
        f"{run.workers}" + (f", {kill} killed" if kill else ""),
        f"{run.seconds:.1f}",
        f"{run.workers * efficiency:.2f}",
        f"{100 * efficiency:.0f} %",
        str(run.trials),
        str(run.trials - run.told),
        str(run.doubled),
        str(run.given_up),
    ]
    return f"| {' | '.join(cells)} |"


def one_study(
    server: str, folder: Path, workers: int, kill: int, arguments: argparse.Namespace
) -> Result:
    """Run a whole search with several workers, and kill the last `kill` of them midway."""
    name = f"scaling-{token_hex(4)}"
    storage = create_database(server, name)
    own = folder / name
    own.mkdir()
    trials = 1 + workers * arguments.trials
    options = options_for(truth_of(WORLD), own, SAMPLER, 0, trials)
    options = replace(options, study=replace(options.study, name=name, storage=storage))
    context = multiprocessing.get_context("spawn")
    together, began = context.Barrier(workers), context.Value("d", 0.0)
    processes = [
        context.Process(target=work, args=(number, options, arguments.seconds, together, began))
        for number in range(workers)
    ]
    for process in processes:
        process.start()
    if kill:
        kill_midway(processes[-kill:], began, arguments.seconds * (arguments.trials // 2 + 0.5))
    for process in processes:
        process.join()
    codes = [process.exitcode for process in processes]
    assert codes == [0] * (workers - kill) + [-signal.SIGKILL] * kill, codes
    return result_of(name, storage, workers, trials, began.value)


def kill_midway(processes: list[SpawnProcess], began: Any, seconds: float) -> None:
    """Kill processes in the middle of a trial, `seconds` after all workers began."""
    while not began.value:
        time.sleep(0.05)
    time.sleep(max(0.0, began.value + seconds - time.time()))
    for process in processes:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)


def work(number: int, options: SearchOptions, seconds: float, together: Any, began: Any) -> None:
    """Run the search as worker 0, or join it as another."""
    runner = SleepingRunner(number, seconds, together, began)
    if number == 0:
        events = search(options, runner)
    else:
        place, workload = options.study, WorkloadOptions(options.workload.model_path)
        assert place.storage is not None
        folder = place.folder / f"host-{number}"
        device = Device(f"cuda:{number}")
        joined = WorkerOptions(place.name, place.storage, workload, folder, device)
        events = join(joined, runner, Stop())
    for _ in events:
        pass


def result_of(name: str, storage: str, workers: int, trials: int, began: float) -> Result:
    """Read the result of a study with Optuna alone."""
    url = storage.replace("postgresql:", "postgresql+psycopg:")
    study = optuna.load_study(study_name=name, storage=url)
    told = study.get_trials(states=(TrialState.COMPLETE,))
    configs = Counter(str(trial.user_attrs["config"]) for trial in told)
    ends = [t.datetime_complete.timestamp() for t in told if t.datetime_complete is not None]
    return Result(
        workers=workers,
        seconds=max(ends) - began,
        trials=trials,
        told=len(told),
        doubled=sum(count - 1 for count in configs.values()),
        given_up=len(study.get_trials(states=(TrialState.FAIL,))),
    )


if __name__ == "__main__":
    main()
