"""Runs jobs in processes of their own: start, watch, kill, and say what became of them.

A `Runner` is anything that answers a job with an outcome. The parent imports neither torch nor the
user's code, and sleeps while a child is timed.
"""

from __future__ import annotations

import errno
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

from autotune.config import TrainingConfig, environ_of
from autotune.cores import environ_for
from autotune.job import Job, job_to_json, without_arguments
from autotune.machine import oom_kills
from autotune.outcome import (
    Crashed,
    Lost,
    Measured,
    OutOfMemory,
    TimedOut,
    TrialOutcome,
    outcome_from_json,
    outcome_to_json,
)
from autotune.strict_json import read_some
from autotune.trial_folder import TrialFolder, make_private, write_atomically
from autotune.tuning.running import logs
from autotune.tuning.running.family import Family
from autotune.tuning.running.launch import Forked, FreshInterpreter, Launched, WarmHost

# How often the resident memory of the child's tree is added up, beside its training.
_SAMPLE_SECONDS = 1.0
# What shared pages really take is dear to read (it grows with the memory): only at new heights.
_NEW_HEIGHT = 1.05


class _Patience(NamedTuple):
    """Seconds for a child that is to end, for helpers of its session, and for who left that."""

    grace: float
    tidy: float
    strays: float


_PATIENT = _Patience(3.0, 1.0, 3.0)
# A person waits, five seconds at most. PyTorch's helper needs two to give shared memory back.
_HURRIED = _Patience(1.0, 0.3, 2.2)
# Processes, memory or descriptors.
_NOTHING_LEFT = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


class Runner(Protocol):
    """Answers jobs with outcomes, one at a time."""

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """Run `job`, keeping its files in `folder`; failure is an outcome, not an exception."""


class SubprocessRunner:
    """Each job in a process of its own, in a session that dies as a whole.

    Forked from the warm host that the job names, where that is safe. There is one at a time: naming
    another one ends it. To be closed, or used in a `with` statement, so that the host ends.
    """

    def __init__(
        self,
        compile_cache: Path,
        warm: bool = True,
        cores: Sequence[int] = (),
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """`compile_cache` is where Inductor keeps what it compiled.

        One per study, so that repeats are cheap and the first time is known to be cold. Children
        stay on `cores`, where any are named. `is_cancelled` is asked about once a second: whether
        to end what runs.
        """
        self._family = Family()
        cache = {"TORCHINDUCTOR_CACHE_DIR": str(compile_cache.resolve())}
        self._environ = {**self._family.environ, **cache, **environ_for(cores)}
        self._is_cancelled = is_cancelled
        self._host: WarmHost | None = None
        self._host_name: str | None = None
        self._why_fresh = "" if warm and sys.platform == "linux" else "no warm host here"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the warm host, if there is one."""
        if self._host is not None:
            self._host.close()
            self._host = None

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """Start a child, wait for it, and leave no process behind.

        Raises:
            KeyboardInterrupt: this runner was cancelled meanwhile.
        """
        # The user's code may change its working folder.
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
            if job.script is not None:  # the child does so as well, unless it did not come to it
                write_atomically(files.job, job_to_json(without_arguments(job)))
        write_atomically(files.outcome, outcome_to_json(outcome))
        return outcome

    def _watched(self, job: Job, files: TrialFolder, lifeline: int) -> TrialOutcome:
        """What becomes of a child for the job, of which nothing is left then."""
        kills = oom_kills()
        child = _Child(self._launch(job, files, lifeline), files)
        try:
            outcome = child.watch(job, self._is_cancelled)
        finally:
            patience = _HURRIED if self._is_cancelled() else _PATIENT
            child.end(self._family, self._host.pid if self._host else None, patience)
            for log in (files.stdout, files.stderr):
                logs.shorten(log)
        if outcome is None:
            outcome = _without_outcome(child)
        if isinstance(outcome, Crashed) and _was_killed(outcome) and oom_kills() > kills:
            outcome = OutOfMemory("host", f"{outcome.detail} by the kernel", child.peak_bytes)
        return _with_tree_memory(outcome, job, child.peak_bytes)

    def _launch(self, job: Job, files: TrialFolder, lifeline: int) -> Launched:
        """The child for a job, by the cheapest way that is safe."""
        asked = environ_of(TrainingConfig.of(job.config or {}))
        why_fresh = "asked for" if job.host is None else self._why_fresh
        if asked:
            why_fresh = f"{', '.join(asked)} must be set when a process starts"
        if not why_fresh:
            forked = self._fork(job, files, lifeline)
            if isinstance(forked, Forked):
                files.launch.write_text("forked\n", encoding="utf-8")
                return forked
            self._why_fresh = why_fresh = forked
        files.launch.write_text(f"fresh interpreter: {why_fresh}\n", encoding="utf-8")
        return FreshInterpreter(files, {**self._environ, **asked}, lifeline)

    def _fork(self, job: Job, files: TrialFolder, lifeline: int) -> Forked | str:
        """A fork of the job's host, or why there is none. A host that was killed is replaced."""
        if job.host != self._host_name:
            self.close()
        self._host_name = job.host
        for _ in range(2):
            self._host = self._host or WarmHost(self._environ)
            forked = self._host.fork(job, files, lifeline)
            if isinstance(forked, Forked):
                return forked
            self.close()
            if forked is not None:
                return forked
            write_atomically(files.job, job_to_json(job))  # a fork of the dead may have read it
        return "warm hosts do not answer"


@contextmanager
def _lifeline() -> Iterator[int]:
    """A descriptor for a child that ends with this block, as with this process."""
    descriptor, other_end = os.pipe()
    try:
        yield descriptor
    finally:
        os.close(descriptor)
        os.close(other_end)


class _Child:
    """A running child process, with all that it starts."""

    def __init__(self, process: Launched, files: TrialFolder) -> None:
        self.process = process
        self._files = files
        self.peak_bytes = 0
        self._highest_resident = 0
        self._seen: set[psutil.Process] = set()

    def watch(self, job: Job, is_cancelled: Callable[[], bool]) -> TrialOutcome | None:
        """Wait for the child's own outcome; None where it ended without one."""
        deadline = time.monotonic() + job.deadline_seconds
        limit = job.memory_limit_bytes if job.device == "cpu" else None
        while not self.process.ended_within(_SAMPLE_SECONDS):
            self._sample()
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
        """End the child, then what is left of its session, then what left the session."""
        if not self.process.ended_within(0):
            self._signal(signal.SIGTERM)
            if not self.process.ended_within(patience.grace):
                with suppress(ProcessLookupError):
                    os.kill(self.process.pid, signal.SIGKILL)
                self.process.ended_within(None)
        # Helpers that give shared memory back do so when those who used it are gone: Python's at
        # once, PyTorch's, in a session of its own, after two seconds.
        self._signal(signal.SIGTERM)
        is_gone = family.is_gone_within(patience.tidy, host_pid)
        self._signal(signal.SIGKILL)
        if not is_gone and not family.is_gone_within(patience.strays, host_pid):
            family.kill(host_pid)
        for process in self._seen:
            with suppress(psutil.Error):
                process.kill()  # psutil compares start times: never another process of that number

    def _sample(self) -> None:
        """Note who belongs to the child, how much memory they hold together, and what it prints."""
        for log in (self._files.stdout, self._files.stderr):
            logs.hold_down(log)
        with suppress(psutil.Error):
            main = psutil.Process(self.process.pid)
            children = main.children(recursive=True)
            self._seen.update(children)
            host = self.process.host_pid
            processes = [main, *children, *([psutil.Process(host)] if host else [])]
            resident = sum(map(_resident_bytes, processes))
            if resident > _NEW_HEIGHT * self._highest_resident:
                self._highest_resident = resident
                self.peak_bytes = max(self.peak_bytes, sum(map(_held_bytes, processes)))

    def _signal(self, number: int) -> None:
        # The session's leader may be gone while its DataLoader workers live on.
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def _resident_bytes(process: psutil.Process) -> int:
    """Memory of one process with all that it shares; 0 once it is gone."""
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _held_bytes(process: psutil.Process) -> int:
    """Memory of one process with its share of what it shares (PSS); 0 once it is gone."""
    try:
        memory = process.memory_full_info()
    except psutil.Error:
        return 0
    return int(getattr(memory, "pss", memory.rss))


def _without_outcome(child: _Child) -> TrialOutcome:
    """What a child that said nothing died of."""
    code = child.process.exit_code
    if code is None:
        return Lost("the warm host was killed, and nobody saw how its child ended")
    if code < 0:
        name = signal.Signals(-code).name
        if -code == signal.SIGBUS:
            return OutOfMemory("shared", "bus error: /dev/shm is full", child.peak_bytes or None)
        return Crashed(f"killed by {name}")
    return Crashed(f"exited with code {code} without a result")


def _was_killed(outcome: Crashed) -> bool:
    """By SIGKILL, itself or one of its workers; other signals are not for lack of memory."""
    return "SIGKILL" in outcome.detail or "DataLoader worker" in outcome.detail


def _with_tree_memory(outcome: TrialOutcome, job: Job, peak_bytes: int) -> TrialOutcome:
    """On CPU the workers' memory counts too, which only the parent can see."""
    if not isinstance(outcome, Measured) or job.device != "cpu":
        return outcome
    own = outcome.measurement.peak_memory_bytes
    return Measured(replace(outcome.measurement, peak_memory_bytes=max(own, peak_bytes)))
