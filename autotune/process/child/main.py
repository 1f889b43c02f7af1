"""The child process: `python -m autotune.process.child.main FOLDER LIFELINE START`.

It reads `job.json`, does its one task, writes `outcome.json` beside it and exits at once. Output of
the user's code goes to the log files; no part of the result passes through stdout. START is the
parent's monotonic clock when it launched this process, in seconds. A warm host calls `work` in a
fork. A launcher starts it once for each of several ranks.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, assert_never

from autotune.calling.target import import_folder
from autotune.configuration import job as jobs
from autotune.configuration.job import Job
from autotune.configuration.script import Script
from autotune.process.common import child_ties
from autotune.process.common.imports import AfterImport
from autotune.process.common.trial_folder import TrialFolder, read_some, write_atomically
from autotune.scripting.files import KeptFiles
from autotune.scripting.run import Calls, run_call
from autotune.scripting.surroundings import Record
from autotune.values import outcome as outcomes
from autotune.values.errors import AutotuneError

if TYPE_CHECKING:
    from autotune.scripting.trial import Trial
    from autotune.training.before_fork import Prepared
    from autotune.training.tasks import LoadedJob

_NO_MEETING = (
    "the launcher does not set {absent}, which torch's processes need to find each other. Set them "
    "before autotune starts, as for your own training: the host of rank 0 and a free port there"
)
_NO_TORCH = outcomes.UserError("it ended without importing torch", "")
STACKS_AT = 0.95
"""Share of a job's deadline after which the stacks of all threads are printed."""


def main() -> None:
    """Run the job that the command line of this new process names."""
    path, lifeline, start = sys.argv[1:]
    child_ties.hold_lifeline(lifeline)
    child_ties.stay_on_cores()
    work(TrialFolder(Path(path)), float(start))


def _begun_by_launcher(job: Job, folder: TrialFolder) -> TrialFolder:
    """Return the folder as this rank sees it, which notes its place and prints to its own logs.

    Torch finds the place that a launcher of the user's has given. A script does by itself what it
    does under that launcher. The process ends if there are not as many as before.
    """
    place = child_ties.this_place()
    if place is None:
        sys.exit(
            f"{child_ties.TELLS}it sets no rank: none of {child_ties.KNOWN} is in the environment"
        )
    own = folder.of_rank(place.rank)
    print_to(own, keep=True)
    write_atomically(own.place, child_ties.note_of(place))
    if job.processes not in (0, place.size):
        sys.exit(1)  # the parent knows both numbers
    if job.launch and job.builds_dataset:
        os.environ.update(place.torch_variables)
        absent = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
        if absent and place.size > 1:
            leave(own, outcomes.Rejected(_NO_MEETING.format(absent=" and ".join(absent))), 1)
    return own


def print_to(folder: TrialFolder, keep: bool = False) -> None:
    """Redirect stdout and stderr to the logs of a trial, which are emptied unless `keep` is set."""
    for path, descriptor in ((folder.stdout, 1), (folder.stderr, 2)):
        if not keep:
            path.write_bytes(b"")
        with path.open("ab") as log:
            os.dup2(log.fileno(), descriptor)


def work(folder: TrialFolder, process_start: float, prepared: Prepared | None = None) -> NoReturn:
    """Run one job, then exit without teardown, so that ending workers does not delay the result."""
    faulthandler.enable()
    try:
        job = jobs.job_from_json(read_some(folder.job))
    except AutotuneError as error:
        leave(folder, outcomes.Lost(str(error)))
    if job.is_of_ranks:
        folder = _begun_by_launcher(job, folder)
    # The deadline began with the launch: a launcher of several ranks takes seconds of it.
    gone = time.monotonic() - process_start
    faulthandler.dump_traceback_later(max(0.1, STACKS_AT * job.deadline_seconds - gone))
    outcome = run(job, folder, process_start, prepared)
    leave(folder, outcome, exit_code(job, outcome))


def exit_code(job: Job, outcome: outcomes.TrialOutcome) -> int:
    """Return the exit code of a child: 1 if a launcher is to end the other processes for it."""
    return int(job.is_of_ranks and isinstance(outcome, outcomes.Failure))


def leave(folder: TrialFolder, outcome: outcomes.TrialOutcome, code: int = 0) -> NoReturn:
    """Write the outcome, flush the logs and exit with `code`, without teardown.

    Rank 0 answers for all processes that train together; for the others only failures are written.
    """
    if folder.rank == 0 or isinstance(outcome, outcomes.Failure):
        write_atomically(folder.outcome, outcomes.outcome_to_json(outcome))
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # the user's code may have closed or replaced it
            stream.flush()
    os._exit(code)


def run(
    job: Job, folder: TrialFolder, process_start: float, prepared: Prepared | None = None
) -> outcomes.TrialOutcome:
    """Run `job` and return its outcome; an error of the user's code becomes one, too."""
    folder.enter_phase("import")
    _hide_arguments(job, folder)
    try:
        if job.script is not None:
            return _run_script(job, job.script, folder, process_start)
        from autotune.training import inspection, tasks

        if isinstance(job.task, jobs.Inspect):
            return inspection.inspect(job, prepared)
        return _answer(tasks.prepare(job, folder, process_start, prepared), job.task)
    # The user's code may raise anything, SystemExit and KeyboardInterrupt included.
    except BaseException as error:
        return failed(job, error)


def _hide_arguments(job: Job, folder: TrialFolder) -> None:
    """Take the script's arguments out of the job's file, once all its processes have read it."""
    place = child_ties.this_place() if job.is_of_ranks else None
    size = 1 if place is None else place.size
    # A process that has read its job enters a phase.
    have_read = all(folder.of_rank(rank).phase_file.exists() for rank in range(size))
    if have_read and (hidden := jobs.without_arguments(job)) != job:
        write_atomically(folder.job, jobs.job_to_json(hidden))


def failed(job: Job, error: BaseException) -> outcomes.TrialOutcome:
    """Print the traceback of an error of the user's code, and return the outcome for it."""
    # The outcome can be written though all files that may be open are in use.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    from autotune.training import failures, memory

    traceback.print_exception(error)
    peak = memory.peak_so_far(job.device)
    return failures.classify(error, Path(job.model_path) if job.model_path else None, peak)


def _run_script(
    job: Job, script: Script, folder: TrialFolder, process_start: float
) -> outcomes.TrialOutcome:
    """Run the job's script; return its outcome if the script ends before the job is done.

    The hooks are set up when the script imports torch, not before. The process ends as soon as the
    job is done.

    Side effects: sets AUTOTUNE_TRIAL, the variables that carry settings, and what `Record` does.

    Raises:
        BaseException: whatever the script raises.
    """
    assert job.model_path is not None
    trials: list[Trial] = []

    def cannot_keep(detail: str) -> NoReturn:
        refused = outcomes.UserError(detail, "")
        try:
            leave(folder, refused, exit_code(job, refused))
        finally:  # a full disk may take no outcome either
            os._exit(1)

    imports_from = import_folder(Path(job.model_path), script.module)
    kept = None if script.keep is None else KeptFiles(script.keep)
    record = Record(folder.path, kept, cannot_keep)
    if isinstance(job.task, jobs.Observe):
        record.watch()
    calls = Calls(dict(script.calls))
    calls.watch()

    def added_to(outcome: outcomes.TrialOutcome) -> outcomes.TrialOutcome:
        return record.added_to(outcome, imports_from, calls.passed)

    def left(outcome: outcomes.TrialOutcome) -> NoReturn:
        leave(folder, added_to(outcome), exit_code(job, outcome))

    def begin() -> None:
        try:
            from autotune.scripting.trial import Trial

            trial = Trial(job, folder, left, calls)
            trial.begin(process_start)
            trials.append(trial)
        except Exception as error:
            traceback.print_exception(error)
            left(outcomes.Lost(f"internal error of autotune: {error!r}"))

    os.environ.update({"AUTOTUNE_TRIAL": "1", **dict(script.variables)})
    folder.enter_phase("the script's start, before its first optimizer step")
    AfterImport("torch", begin)
    try:
        run_call(script, job.model_path, folder)
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
    return added_to(trials[0].ended() if trials else _NO_TORCH)


def _answer(loaded: LoadedJob, task: jobs.Task) -> outcomes.TrialOutcome:
    """Carry out a task on a model.py."""
    from autotune.numerics import numerics_check
    from autotune.training import arithmetic, profiling, tasks

    match task:
        case jobs.Measure(plan):
            return tasks.measure(loaded, plan)
        case jobs.Probe():
            return tasks.probe(loaded, task)
        case jobs.CountFlops():
            return arithmetic.count(loaded, task)
        case jobs.Diagnose():
            return profiling.diagnose(loaded, task)
        case jobs.Gate():
            return numerics_check.compare(loaded, task)
        case jobs.Inspect() | jobs.Observe() | jobs.TakeFirstSteps():
            raise NotImplementedError(f"{task.kind} is not asked of a model.py")
        case _:
            assert_never(task)


if __name__ == "__main__":
    main()
