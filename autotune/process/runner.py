"""Run jobs in processes of their own: start, watch and end them, and return their outcomes.

A `Runner` is anything that answers a job with an outcome. The parent imports neither torch nor the
user's code, and sleeps while a child is timed, except for heartbeats to a server.
"""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import Protocol, Self

from autotune.configuration.job import Job, job_to_json, without_arguments
from autotune.configuration.script import Keep
from autotune.process import children
from autotune.process.children import RunningChild
from autotune.process.common.trial_folder import (
    EVALUATION,
    NUMERICS_CHECK,
    TrialFolder,
    make_private,
    write_atomically,
)
from autotune.process.ranks import Ranks, outcome_of_ranks
from autotune.process.warm_hosts import (
    HOST_PATIENCE_SECONDS,
    Forked,
    Hosts,
    variables_needed,
)
from autotune.values.machine import oom_kills
from autotune.values.outcome import (
    Crashed,
    Lost,
    Measured,
    OutOfMemory,
    TrialOutcome,
    outcome_to_json,
)

# Errors for a lack of processes, memory or file descriptors.
_NOTHING_LEFT = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


class Runner(Protocol):
    """A protocol for objects that answer jobs with outcomes, one at a time."""

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """Run `job` with its files in `folder`; failure is an outcome, not an exception."""


class SubprocessRunner:
    """A runner that runs each job in a process of its own, and ends all that it started.

    The process is forked from the warm host that the job names, if that is safe. Call `close`, or
    use it in a `with` statement, to end the hosts.
    """

    def __init__(
        self,
        compile_cache: Path,
        warm: bool = True,
        environ: Mapping[str, str] = MappingProxyType({}),
        is_cancelled: Callable[[], bool] = lambda: False,
        keep: Path | None = None,
    ) -> None:
        """Set up a runner without starting anything.

        Args:
            compile_cache: Inductor's cache, one per study: repeated compilations are cheap, and the
                first is known to be cold.
            warm: use warm hosts where possible.
            environ: what children get in addition to this process's, such as `Device.environ`.
            is_cancelled: called about once a second; True ends the running job.
            keep: folder, made when it is needed, for files as they were before a script overwrote
                or deleted them; None to keep none.
        """
        self._family = children.Family()
        cache = {"TORCHINDUCTOR_CACHE_DIR": str(compile_cache.resolve())}
        self._environ = {**self._family.environ, **cache, **environ}
        self._is_cancelled = is_cancelled
        self._keep_in = None if keep is None else keep.resolve()
        self._began: float | None = None
        self._hosts = Hosts(self._environ)
        self._why_fresh = "" if warm else "no fork server here"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the warm hosts."""
        self._hosts.close()

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """Start a child, wait for it, and leave no process behind.

        Raises:
            KeyboardInterrupt: this runner was cancelled meanwhile.
        """
        # Absolute, because the user's code may change its working directory.
        files = TrialFolder(folder.resolve())
        make_private(files.path)
        files.remove_earlier()
        job = _with_places(job, files, self._keep(files))
        write_atomically(files.job, job_to_json(job))
        try:
            outcome = self._watched(job, files)
        except OSError as error:
            if error.errno not in _NOTHING_LEFT:
                raise
            outcome = Lost(f"no process could be started: {error.strerror}")
        finally:
            if job.script is not None:  # in case the child has not done so
                write_atomically(files.job, job_to_json(without_arguments(job)))
                files.remove_workdirs()
        write_atomically(files.outcome, outcome_to_json(outcome))
        return outcome

    def _keep(self, files: TrialFolder) -> Keep | None:
        """Return where scripts keep files that are older than the first job."""
        if self._keep_in is None:
            return None
        if self._began is None:  # by the clock of the file system
            with TemporaryFile(dir=files.path) as new:
                self._began = os.fstat(new.fileno()).st_ctime
        return Keep(str(self._keep_in), self._began)

    def _watched(self, job: Job, files: TrialFolder) -> TrialOutcome:
        """Run a child for the job to its end and return its outcome; no process of it is left."""
        kills = oom_kills()
        begun, outcome = self._build(job, files)
        if outcome is not None:
            return outcome
        launched = self._launch(job, files, keep_logs=begun is not None)
        child = RunningChild(launched, files, Ranks(job, files) if job.is_of_ranks else None)
        if begun is not None:  # one deadline for both, as in a process that builds itself
            child.begun = begun
        try:
            outcome = child.watch(job, self._is_cancelled)
        finally:
            self._end(child, files, self._hosts.pids)
        if job.is_of_ranks:
            outcome = outcome_of_ranks(files, outcome)
            shutil.rmtree(files.launcher_logs, ignore_errors=True)
        if outcome is None:
            outcome = child.outcome_of_exit()
        if isinstance(outcome, Crashed) and _was_killed(outcome) and oom_kills() > kills:
            outcome = OutOfMemory("host", f"{outcome.detail} by the kernel", child.peak_bytes)
        if isinstance(outcome, OutOfMemory) and files.phase in (EVALUATION, NUMERICS_CHECK):
            return replace(outcome, during=files.phase)
        return _with_tree_memory(outcome, job, child.peak_bytes)

    def _end(self, child: RunningChild, files: TrialFolder, hosts: frozenset[int]) -> None:
        """End all processes of a child, these hosts excepted, and shorten its logs."""
        is_hurried = self._is_cancelled()
        child.end(self._family, hosts, children.HURRIED if is_hurried else children.PATIENT)
        for log in files.logs:
            children.shorten(log)

    def _build(self, job: Job, files: TrialFolder) -> tuple[float | None, TrialOutcome | None]:
        """Let the job's host build its dataset, unless it has already or forks cannot use it.

        Building is watched as a trial is, since the user's code may fail, hang or pass the memory
        limit. Return the monotonic time at which it began, if the dataset was built now, and the
        job's outcome, if it failed.
        """
        self._hosts.make_room(job)
        building = None if self._why_fresh_for(job) else self._hosts.building(job, files)
        if building is None:
            return None, None
        files.launch.write_text("in the fork server\n", encoding="utf-8")
        child = RunningChild(building, files)
        try:
            while not building.begins_within(children.SAMPLE_SECONDS):
                if self._is_cancelled():
                    raise KeyboardInterrupt
                if time.monotonic() > child.begun + HOST_PATIENCE_SECONDS:
                    return None, None
            child.begun = time.monotonic()
            outcome = child.watch(job, self._is_cancelled)
        finally:
            if building.has_spoilt_host:
                self._end(child, files, self._hosts.pids - {building.pid})
            self._hosts.note(job, building)
        return (child.begun if building.is_done else None), outcome

    def _launch(self, job: Job, files: TrialFolder, keep_logs: bool) -> children.Launched:
        """Start the child for a job in the cheapest safe way."""
        why_fresh = self._why_fresh_for(job)
        if not why_fresh:
            forked = self._hosts.fork(job, files, keep_logs)
            if isinstance(forked, Forked):
                reason = self._hosts.why_not_shared(job)
                anew = f"; dataset built again: {reason}" if reason else ""
                variables = ", ".join(variables_needed(job))
                how = f"forked with {variables}" if variables else "forked"
                files.launch.write_text(f"{how}{anew}\n", encoding="utf-8")
                return forked
            why_fresh = forked
        how = why_fresh if job.is_of_ranks else f"fresh interpreter: {why_fresh}"
        files.launch.write_text(f"{how}\n", encoding="utf-8")
        environ = {**self._environ, **variables_needed(job)}
        return children.FreshInterpreter(job, files, environ)

    def _why_fresh_for(self, job: Job) -> str:
        """Return why a job needs a new interpreter; "" if it may be forked."""
        if job.launch:
            return f"started by {shlex.join(job.launch)}"
        if job.processes > 1:
            return "started by torch's launcher"
        if job.host is None:
            return "asked for"
        return self._why_fresh or self._hosts.why_not_forked(job)


def _with_places(job: Job, files: TrialFolder, keep: Keep | None) -> Job:
    """Return the job with the folders of its script: a new one to run in, and one to keep files."""
    if job.script is None:
        return job
    script = replace(job.script, keep=keep)
    if script.workdir is not None:
        script = replace(script, workdir=str(files.workdir_in(script.workdir)))
    return replace(job, script=script)


def _was_killed(outcome: Crashed) -> bool:
    """Return True if SIGKILL ended it or a worker; other signals are no sign of lacking memory."""
    return "SIGKILL" in outcome.detail or "DataLoader worker" in outcome.detail


def _with_tree_memory(outcome: TrialOutcome, job: Job, peak_bytes: int) -> TrialOutcome:
    """Raise the peak memory on CPU to the parent's, which includes the time before the blocks."""
    if not isinstance(outcome, Measured) or job.device != "cpu":
        return outcome
    own = outcome.measurement.peak_memory_bytes
    return Measured(replace(outcome.measurement, peak_memory_bytes=max(own, peak_bytes)))
