"""Runs jobs in processes of their own: start, watch, kill, and say what became of them.

A `Runner` is anything that answers a job with an outcome. The parent imports neither torch nor the
user's code, and sleeps while a child is timed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import psutil

from autotune.job import Job, job_to_json
from autotune.outcome import (
    Crashed,
    Measured,
    OutOfMemory,
    TimedOut,
    TrialOutcome,
    outcome_from_json,
    outcome_to_json,
)
from autotune.trial_folder import TrialFolder, write_atomically

# How often the resident memory of the child's tree is added up, beside its training.
_SAMPLE_SECONDS = 1.0
# What shared pages really take is dear to read (it grows with the memory): only at new heights.
_NEW_HEIGHT = 1.05
_GRACE_SECONDS = 3.0


class Runner(Protocol):
    """Answers jobs with outcomes, one at a time."""

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """Run `job`, keeping its files in `folder`; failure is an outcome, not an exception."""


@dataclass(frozen=True)
class SubprocessRunner:
    """Each job in a fresh interpreter, in a session of its own that dies as a whole."""

    compile_cache: Path
    """Where Inductor keeps what it compiled; one per study, so that repeats are cheap and the
    first time is known to be cold."""

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """Start a child, wait for it, and leave no process behind."""
        # The user's code may change its working folder.
        files = TrialFolder(folder.resolve())
        files.path.mkdir(parents=True, exist_ok=True)
        files.outcome.unlink(missing_ok=True)
        write_atomically(files.job, job_to_json(job))
        oom_kills = _oom_kills()
        child = _Child(files, {"TORCHINDUCTOR_CACHE_DIR": str(self.compile_cache.resolve())})
        try:
            outcome = child.watch(job)
        finally:
            child.end()
        if outcome is None:
            outcome = _without_outcome(child)
        if isinstance(outcome, Crashed) and _oom_kills() > oom_kills:
            outcome = OutOfMemory("host", f"{outcome.detail} by the kernel", child.peak_bytes)
        outcome = _with_tree_memory(outcome, job, child.peak_bytes)
        write_atomically(files.outcome, outcome_to_json(outcome))
        return outcome


class _Child:
    """One child process with its session, log files and lifeline."""

    def __init__(self, files: TrialFolder, environ: Mapping[str, str]) -> None:
        self._files = files
        self.peak_bytes = 0
        self._highest_resident = 0
        self._seen: set[psutil.Process] = set()
        lifeline, self._lifeline_end = os.pipe()
        with files.stdout.open("wb") as stdout, files.stderr.open("wb") as stderr:
            self.process = psutil.Popen(
                [
                    sys.executable,
                    "-m",
                    "autotune.training.worker",
                    str(files.path),
                    str(lifeline),
                    repr(time.monotonic()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env={**os.environ, **environ},
                start_new_session=True,
                pass_fds=(lifeline,),
            )
        os.close(lifeline)

    def watch(self, job: Job) -> TrialOutcome | None:
        """Wait for the child's own outcome; None where it ended without one."""
        deadline = time.monotonic() + job.deadline_seconds
        limit = job.memory_limit_bytes if job.device == "cpu" else None
        while self.process.is_running():
            try:
                self.process.wait(timeout=_SAMPLE_SECONDS)
                break
            except (psutil.TimeoutExpired, subprocess.TimeoutExpired):
                self._sample()
            if limit is not None and self.peak_bytes > limit:
                return OutOfMemory("host", f"passed the limit of {limit} bytes", self.peak_bytes)
            if time.monotonic() > deadline:
                return TimedOut(self._files.phase, job.deadline_seconds)
        if self._files.outcome.exists():
            return outcome_from_json(self._files.outcome.read_bytes())
        return None

    def end(self) -> None:
        """Kill what is left of the session, and what left the session; close the lifeline."""
        self._signal(signal.SIGTERM if self.process.is_running() else signal.SIGKILL)
        with suppress(psutil.TimeoutExpired, subprocess.TimeoutExpired):
            self.process.wait(timeout=_GRACE_SECONDS)
        self._signal(signal.SIGKILL)
        self.process.wait()
        for process in self._seen:
            with suppress(psutil.Error):
                process.kill()  # psutil compares start times: never another process of that number
        os.close(self._lifeline_end)

    def _sample(self) -> None:
        """Note who belongs to the child, and how much memory they hold together."""
        with suppress(psutil.Error):
            processes = [self.process, *self.process.children(recursive=True)]
            self._seen.update(processes[1:])
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
    code = child.process.returncode
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        if -code == signal.SIGBUS:
            return OutOfMemory("shared", "bus error: /dev/shm is full", child.peak_bytes or None)
        return Crashed(f"killed by {name}")
    return Crashed(f"exited with code {code} without a result")


def _with_tree_memory(outcome: TrialOutcome, job: Job, peak_bytes: int) -> TrialOutcome:
    """On CPU the workers' memory counts too, which only the parent can see."""
    if not isinstance(outcome, Measured) or job.device != "cpu":
        return outcome
    own = outcome.measurement.peak_memory_bytes
    return Measured(replace(outcome.measurement, peak_memory_bytes=max(own, peak_bytes)))


def _oom_kills() -> int:
    """How often the kernel has killed for lack of memory since boot."""
    try:
        text = Path("/proc/vmstat").read_text(encoding="ascii")
    except OSError:
        return 0
    counts = [line.split()[1] for line in text.splitlines() if line.startswith("oom_kill ")]
    return int(counts[0]) if counts else 0
