"""What more workers bring: a study of replayed trials with 1, 2, 4 and 8 of them on PostgreSQL.

    python benchmarks/scaling.py [--storage URL] [--workers 1,2,4,8] [--seconds 5] [--trials 8]

Each is a process of its own: the first runs `autotune.tuning.search.search`, the others
`autotune.tuning.workers.join`, as the commands do. Their runners answer from the table of a world,
and sleep as long as a trial would take; other jobs are answered at once. Everybody has as many
trials to do, whatever their number, so the ideal is the time of one. Printed for each number: the
speed-up, and how many trials were lost or measured twice. At last two workers are killed midway.
Without --storage a server of its own is started.
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
from search import options_for, truth_of

from autotune.job import Inspect, Job, Measure
from autotune.outcome import Inspected, TrialOutcome
from autotune.tuning.running.devices import Device
from autotune.tuning.running.replay import ReplayRunner
from autotune.tuning.running.stop import Stop
from autotune.tuning.scene import SearchOptions
from autotune.tuning.search import search
from autotune.tuning.workers import WorkerOptions, join

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

from postgres import create_database, running_server

WORLD = "tabular"
SAMPLER = "random"
KILLED = 2


@dataclass
class SleepingRunner(ReplayRunner):
    """Answers from a table; a trial takes its time, on a device of this worker's own."""

    number: int
    trial_seconds: float
    together: Any
    """A barrier at which everybody's first trial waits for the others."""
    began: Any
    """When they all had come."""
    started: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        super().__init__(truth_of(WORLD).table, seed=self.number)

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """The recorded outcome."""
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
    """One study."""

    workers: int
    seconds: float
    trials: int
    told: int
    doubled: int
    given_up: int


def main() -> None:
    """Run all studies and print a line for each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--storage", help="URL of a server, without a database.")
    parser.add_argument("--workers", default="1,2,4,8")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--trials", type=int, default=8, help="For each worker.")
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
    """A row of the table."""
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
    """A whole search with so many workers, of which some are killed after half of the time."""
    name = f"scaling-{token_hex(4)}"
    storage = create_database(server, name)
    own = folder / name
    own.mkdir()
    trials = 1 + workers * arguments.trials
    options = replace(
        options_for(truth_of(WORLD), own, SAMPLER, 0, trials), storage=storage, study=name
    )
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
    """Kill them in the middle of a trial, so long after they all began."""
    while not began.value:
        time.sleep(0.05)
    time.sleep(max(0.0, began.value + seconds - time.time()))
    for process in processes:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)


def work(number: int, options: SearchOptions, seconds: float, together: Any, began: Any) -> None:
    """What one process does: the first leads."""
    runner = SleepingRunner(number, seconds, together, began)
    if number == 0:
        events = search(options, runner)
    else:
        assert options.storage is not None
        folder = options.folder / f"host-{number}"
        device = Device(f"cuda:{number}")
        joined = WorkerOptions(options.study, options.storage, options.model_path, folder, device)
        events = join(joined, runner, Stop())
    for _ in events:
        pass


def result_of(name: str, storage: str, workers: int, trials: int, began: float) -> Result:
    """What Optuna alone tells of the study."""
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
