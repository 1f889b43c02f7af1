"""The child process: `python -m autotune.training.worker FOLDER LIFELINE_DESCRIPTOR START`.

Reads `job.json`, does its one task, writes `outcome.json` beside it and leaves at once. Whatever
the user's code prints goes to the log files; nothing of the result passes through stdout. START is
the parent's monotonic clock when it launched this process. A warm host calls `work` in a fork.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, assert_never

from autotune.cores import stay_on_cores
from autotune.errors import AutotuneError
from autotune.job import (
    Diagnose,
    FindLimits,
    Gate,
    Inspect,
    Job,
    Measure,
    Probe,
    Profile,
    job_from_json,
)
from autotune.lifeline import hold_lifeline
from autotune.outcome import Lost, TrialOutcome, outcome_to_json
from autotune.strict_json import read_some
from autotune.trial_folder import TrialFolder, write_atomically

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
        outcome: TrialOutcome = Lost(str(error))
    else:
        faulthandler.dump_traceback_later(_STACKS_AT * job.deadline_seconds)
        outcome = run(job, folder, process_start)
    write_atomically(folder.outcome, outcome_to_json(outcome))
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # the user's code may have closed or replaced it
            stream.flush()
    os._exit(0)


def run(job: Job, folder: TrialFolder, process_start: float) -> TrialOutcome:
    """The outcome of `job`; whatever the user's code raises becomes one."""
    folder.enter_phase("import")
    from autotune.training import diagnose, failures, gate, memory, operators, tasks

    try:
        if isinstance(job.task, Inspect):
            return tasks.inspect(job)
        bench = tasks.prepare(job, folder, process_start)
        match job.task:
            case Measure(plan):
                return tasks.measure(bench, plan)
            case Probe(samples, seeds):
                return tasks.probe(bench, samples, seeds)
            case FindLimits(plan):
                return tasks.find_limits(bench, plan)
            case Diagnose():
                return diagnose.diagnose(bench, job.task)
            case Profile():
                return operators.profile_steps(bench, job.task)
            case Gate():
                return gate.compare(bench, job.task)
            case _:
                assert_never(job.task)
    # The user's code may raise anything, SystemExit and KeyboardInterrupt included.
    except BaseException as error:
        traceback.print_exception(error)
        peak = memory.peak_so_far(job.device)
        return failures.classify(error, Path(job.model_path) if job.model_path else None, peak)


if __name__ == "__main__":
    main()
