"""Run jobs in processes of their own: start, watch and end them, and return their outcomes.

A `Runner` is anything that answers a job with an outcome. The parent imports neither torch nor the
user's code, and sleeps while a child is timed.
"""

from __future__ import annotations

import errno
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol, Self

import psutil

from autotune.configuration.job import Job, job_to_json, without_arguments
from autotune.configuration.training_config import TrainingConfig, environ_of
from autotune.processes import logs
from autotune.processes.descendants import Family
from autotune.processes.launch import (
    HOST_PATIENCE_SECONDS,
    Forked,
    FreshInterpreter,
    Launched,
)
from autotune.processes.warm_hosts import Hosts
from autotune.system.cores import environ_for
from autotune.system.process_tree import MemoryPeak, ProcessTree
from autotune.system.trial_folder import (
    EVALUATION,
    NUMERICS_CHECK,
    TIMED,
    TrialFolder,
    make_private,
    write_atomically,
)
from autotune.values.machine import oom_kills
from autotune.values.outcome import (
    Crashed,
    Lost,
    Measured,
    OutOfMemory,
    TimedOut,
    TrialOutcome,
    outcome_from_json,
    outcome_to_json,
)
from autotune.values.strict_json import read_some

# Seconds between two looks at a running child; see `autotune.system.process_tree`.
_SAMPLE_SECONDS = 1.0


class _Patience(NamedTuple):
    """Seconds to wait for processes to end before they are killed."""

    grace: float
    """Seconds for the child itself."""
    tidy: float
    """Seconds for helpers in its session."""
    strays: float
    """Seconds for processes that have left the session."""


_PATIENT = _Patience(3.0, 1.0, 3.0)
# For a person who waits, below five seconds in all. PyTorch's helper that frees shared memory needs
# two.
_HURRIED = _Patience(1.0, 0.3, 2.2)
# Errors for a lack of processes, memory or file descriptors.
_NOTHING_LEFT = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


class Runner(Protocol):
    """A protocol for objects that answer jobs with outcomes, one at a time."""

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """Run `job` with its files in `folder`; failure is an outcome, not an exception."""


class SubprocessRunner:
    """A runner that runs each job in a process of its own, and ends all that it started.

    The process is forked from the warm host that the job names, if that is safe. Call `close`, or
    use it in a `with` statement, to end the host.
    """

    def __init__(
        self,
        compile_cache: Path,
        warm: bool = True,
        cores: Sequence[int] = (),
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Set up a runner without starting anything.

        Args:
            compile_cache: Inductor's cache, one per study: repeated compilations are cheap, and the
                first is known to be cold.
            warm: use warm hosts where possible (on Linux).
            cores: cores that children stay on; empty for all.
            is_cancelled: called about once a second; True ends the running job.
        """
        self._family = Family()
        cache = {"TORCHINDUCTOR_CACHE_DIR": str(compile_cache.resolve())}
        self._environ = {**self._family.environ, **cache, **environ_for(cores)}
        self._is_cancelled = is_cancelled
        self._hosts = Hosts(self._environ)
        self._why_fresh = "" if warm and sys.platform == "linux" else "no warm host here"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the warm host, if there is one."""
        self._hosts.close()

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """Start a child, wait for it, and leave no process behind.

        Raises:
            KeyboardInterrupt: this runner was cancelled meanwhile.
        """
        # Absolute, because the user's code may change its working directory.
        files = TrialFolder(folder.resolve())
        make_private(files.path)
        files.outcome.unlink(missing_ok=True)
        write_atomically(files.job, job_to_json(job))
        try:
            with _lifeline() as lifeline:
                outcome = self._watched(job, files, lifeline)
        except OSError as error:
            if error.errno not in _NOTHING_LEFT:
                raise
            outcome = Lost(f"no process could be started: {error.strerror}")
        finally:
            if job.script is not None:  # in case the child has not done so
                write_atomically(files.job, job_to_json(without_arguments(job)))
        write_atomically(files.outcome, outcome_to_json(outcome))
        return outcome

    def _watched(self, job: Job, files: TrialFolder, lifeline: int) -> TrialOutcome:
        """Run a child for the job to its end and return its outcome; no process of it is left."""
        kills = oom_kills()
        begun, outcome = self._build(job, files)
        if outcome is not None:
            return outcome
        child = _Child(self._launch(job, files, lifeline, keep_logs=begun is not None), files)
        if begun is not None:  # one deadline for both, as in a process that builds itself
            child.begun = begun
        try:
            outcome = child.watch(job, self._is_cancelled)
        finally:
            self._end(child, files, self._hosts.pid)
        if outcome is None:
            outcome = _without_outcome(child)
        if isinstance(outcome, Crashed) and _was_killed(outcome) and oom_kills() > kills:
            outcome = OutOfMemory("host", f"{outcome.detail} by the kernel", child.peak_bytes)
        return _placed(_with_tree_memory(outcome, job, child.peak_bytes), files.phase)

    def _end(self, child: _Child, files: TrialFolder, host_pid: int | None) -> None:
        """End all processes of a child, its host excepted, and shorten its logs."""
        patience = _HURRIED if self._is_cancelled() else _PATIENT
        child.end(self._family, host_pid, patience)
        for log in (files.stdout, files.stderr):
            logs.shorten(log)

    def _build(self, job: Job, files: TrialFolder) -> tuple[float | None, TrialOutcome | None]:
        """Let the job's host build its dataset, unless it has already or forks cannot use it.

        Building is watched as a trial is, since the user's code may fail, hang or pass the memory
        limit. Return the monotonic time at which it began, if the dataset was built now, and the
        job's outcome, if it failed.
        """
        building = None if self._why_fresh_for(job) else self._hosts.building(job, files)
        if building is None:
            return None, None
        files.launch.write_text("in the warm host\n", encoding="utf-8")
        child = _Child(building, files)
        try:
            while not building.begins_within(_SAMPLE_SECONDS):
                if self._is_cancelled():
                    raise KeyboardInterrupt
                if time.monotonic() > child.begun + HOST_PATIENCE_SECONDS:
                    return None, None
            child.begun = time.monotonic()
            outcome = child.watch(job, self._is_cancelled)
        finally:
            if building.has_spoilt_host:
                self._end(child, files, None)
            self._hosts.note(job, building)
        return (child.begun if building.is_done else None), outcome

    def _launch(self, job: Job, files: TrialFolder, lifeline: int, keep_logs: bool) -> Launched:
        """Start the child for a job in the cheapest safe way."""
        why_fresh = self._why_fresh_for(job)
        if not why_fresh:
            forked = self._hosts.fork(job, files, lifeline, keep_logs)
            if isinstance(forked, Forked):
                reason = self._hosts.why_not_shared(job)
                anew = f"; dataset built anew: {reason}" if reason else ""
                files.launch.write_text(f"forked{anew}\n", encoding="utf-8")
                return forked
            self._why_fresh = why_fresh = forked
        files.launch.write_text(f"fresh interpreter: {why_fresh}\n", encoding="utf-8")
        asked = environ_of(TrainingConfig.of(job.config or {}))
        return FreshInterpreter(files, {**self._environ, **asked}, lifeline)

    def _why_fresh_for(self, job: Job) -> str:
        """Return why a job needs a new interpreter; "" if it may be forked."""
        if asked := environ_of(TrainingConfig.of(job.config or {})):
            return f"{', '.join(asked)} must be set when a process starts"
        return "asked for" if job.host is None else self._why_fresh


@contextmanager
def _lifeline() -> Iterator[int]:
    """Yield a descriptor for a child, which ends with this block and with this process."""
    descriptor, other_end = os.pipe()
    try:
        yield descriptor
    finally:
        os.close(descriptor)
        os.close(other_end)


class _Child:
    """A running child process and the processes that it starts."""

    def __init__(self, process: Launched, files: TrialFolder) -> None:
        self.process = process
        self._files = files
        self.begun = time.monotonic()
        """Monotonic time from which the deadline counts."""
        self._peak = MemoryPeak(ProcessTree(process.pid), process.host_pid)
        self._seen: dict[int, psutil.Process] = {}
        self._gone: list[psutil.Process] = []

    @property
    def peak_bytes(self) -> int:
        """Peak memory in bytes as observed so far, with all processes that it started."""
        return self._peak.bytes

    def watch(self, job: Job, is_cancelled: Callable[[], bool]) -> TrialOutcome | None:
        """Wait for the child's outcome; None if it ended without one.

        Raises:
            KeyboardInterrupt: the runner was cancelled meanwhile.
        """
        deadline = self.begun + job.deadline_seconds
        limit = job.memory_limit_bytes if job.device == "cpu" else None
        while not self.process.ended_within(_SAMPLE_SECONDS):
            self._look(limit)
            if is_cancelled():
                raise KeyboardInterrupt
            if limit is not None and self.peak_bytes > limit:
                return OutOfMemory("host", f"passed the limit of {limit} bytes", self.peak_bytes)
            if time.monotonic() > deadline:
                return TimedOut(self._files.phase, job.deadline_seconds)
        if not self._files.outcome.exists():
            return None
        return outcome_from_json(read_some(self._files.outcome))

    def end(self, family: Family, host_pid: int | None, patience: _Patience) -> None:
        """End the child, then the rest of its session, then processes that left the session."""
        if not self.process.ended_within(0):
            self._signal(signal.SIGTERM)
            if not self.process.ended_within(patience.grace):
                with suppress(ProcessLookupError):
                    os.kill(self.process.pid, signal.SIGKILL)
                self.process.ended_within(None)
        # Helpers free shared memory once its users have ended: Python's at once, PyTorch's, which
        # has a session of its own, after two seconds.
        self._signal(signal.SIGTERM)
        is_gone = family.is_gone_within(patience.tidy, host_pid)
        self._signal(signal.SIGKILL)
        if not is_gone and not family.is_gone_within(patience.strays, host_pid):
            family.kill(host_pid)
        for process in (*self._gone, *self._seen.values()):
            with suppress(psutil.Error):
                process.kill()  # psutil compares start times: a reused number is not killed

    def _look(self, limit: int | None) -> None:
        """Record the child's processes and their memory, and limit its logs.

        While blocks are timed, memory is only read if it may pass the limit: the child reads its
        own between two blocks.
        """
        for log in (self._files.stdout, self._files.stderr):
            logs.hold_down(log)
        is_timed = self._files.phase in TIMED
        self._meet(self._peak.look((math.inf if limit is None else limit) if is_timed else 0))

    def _meet(self, pids: Sequence[int]) -> None:
        """Record new processes with their start time, and ended ones: numbers may be reused."""
        self._gone += [self._seen.pop(pid) for pid in set(self._seen) - set(pids)]
        for pid in pids:
            if pid not in self._seen:
                with suppress(psutil.Error):
                    self._seen[pid] = psutil.Process(pid)

    def _signal(self, number: int) -> None:
        # The child may have ended while its DataLoader workers live on.
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def _without_outcome(child: _Child) -> TrialOutcome:
    """Return the outcome of a child that ended without one, from its exit code."""
    code = child.process.exit_code
    if code is None:
        return Lost("the warm host was killed, so it is unknown how its child ended")
    if code < 0:
        name = signal.Signals(-code).name
        if -code == signal.SIGBUS:
            return OutOfMemory("shared", "bus error: /dev/shm is full", child.peak_bytes or None)
        return Crashed(f"killed by {name}")
    return Crashed(f"exited with code {code} without a result")


def _was_killed(outcome: Crashed) -> bool:
    """Return True if SIGKILL ended it or a worker; other signals are no sign of lacking memory."""
    return "SIGKILL" in outcome.detail or "DataLoader worker" in outcome.detail


def _placed(outcome: TrialOutcome, phase: str) -> TrialOutcome:
    """Add the phase to an out-of-memory outcome of the evaluation or the numerics check."""
    if isinstance(outcome, OutOfMemory) and phase in (EVALUATION, NUMERICS_CHECK):
        return replace(outcome, during=phase)
    return outcome


def _with_tree_memory(outcome: TrialOutcome, job: Job, peak_bytes: int) -> TrialOutcome:
    """Raise the peak memory on CPU to the parent's, which includes the time before the blocks."""
    if not isinstance(outcome, Measured) or job.device != "cpu":
        return outcome
    own = outcome.measurement.peak_memory_bytes
    return Measured(replace(outcome.measurement, peak_memory_bytes=max(own, peak_bytes)))
