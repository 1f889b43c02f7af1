"""The child process: `python -m autotune.training.worker FOLDER LIFELINE_DESCRIPTOR START`.

Reads `job.json`, does its one task, writes `outcome.json` beside it and leaves at once. Whatever
the user's code prints goes to the log files; nothing of the result passes through stdout. START is
the parent's monotonic clock when it launched this process. A warm host calls `work` in a fork.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import sys
import traceback
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, assert_never

from autotune.cores import stay_on_cores
from autotune.errors import AutotuneError
from autotune.job import (
    Diagnose,
    FindLimits,
    Gate,
    Inspect,
    Job,
    Measure,
    Observe,
    Probe,
    Profile,
    Task,
    job_from_json,
    job_to_json,
    without_arguments,
)
from autotune.lifeline import hold_lifeline
from autotune.outcome import Lost, TrialOutcome, outcome_to_json
from autotune.scripting.perform import perform
from autotune.strict_json import read_some
from autotune.trial_folder import TrialFolder, write_atomically

if TYPE_CHECKING:
    from autotune.training.tasks import Bench

# The stacks of all threads are printed this share of the deadline before the runner kills.
_STACKS_AT = 0.95


def main() -> None:
    """The job of a child that was started afresh."""
    hold_lifeline(int(sys.argv[2]))
    stay_on_cores()
    work(TrialFolder(Path(sys.argv[1])), process_start=float(sys.argv[3]))


def work(folder: TrialFolder, process_start: float) -> NoReturn:
    """Run one job, then exit without teardown: workers must not keep a result waiting."""
    faulthandler.enable()
    try:
        job = job_from_json(read_some(folder.job))
    except AutotuneError as error:
        leave(folder, Lost(str(error)))
    if job.script is not None:
        write_atomically(folder.job, job_to_json(without_arguments(job)))
    faulthandler.dump_traceback_later(_STACKS_AT * job.deadline_seconds)
    leave(folder, run(job, folder, process_start))


def leave(folder: TrialFolder, outcome: TrialOutcome) -> NoReturn:
    """Say what came out, and end this process as it stands."""
    write_atomically(folder.outcome, outcome_to_json(outcome))
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # the user's code may have closed or replaced it
            stream.flush()
    os._exit(0)


def run(job: Job, folder: TrialFolder, process_start: float) -> TrialOutcome:
    """The outcome of `job`; whatever the user's code raises becomes one."""
    folder.enter_phase("import")
    try:
        if job.script is not None:
            return perform(job, folder, process_start, partial(leave, folder))
        from autotune.training import tasks

        if isinstance(job.task, Inspect):
            return tasks.inspect(job)
        return _answer(tasks.prepare(job, folder, process_start), job.task)
    # The user's code may raise anything, SystemExit and KeyboardInterrupt included.
    except BaseException as error:
        _allow_files()
        from autotune.training import failures, memory

        traceback.print_exception(error)
        peak = memory.peak_so_far(job.device)
        return failures.classify(error, Path(job.model_path) if job.model_path else None, peak)


def _answer(bench: Bench, task: Task) -> TrialOutcome:
    """What a task finds out about a model.py."""
    from autotune.training import diagnose, gate, operators, tasks

    match task:
        case Measure(plan):
            return tasks.measure(bench, plan)
        case Probe(samples, seeds):
            return tasks.probe(bench, samples, seeds)
        case FindLimits(plan):
            return tasks.find_limits(bench, plan)
        case Diagnose():
            return diagnose.diagnose(bench, task)
        case Profile():
            return operators.profile_steps(bench, task)
        case Gate():
            return gate.compare(bench, task)
        case Inspect() | Observe():
            raise NotImplementedError(f"{task.kind} is not asked of a model.py")
        case _:
            assert_never(task)


def _allow_files() -> None:
    """Where all files that may be open are, the outcome could not be written."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    main()
