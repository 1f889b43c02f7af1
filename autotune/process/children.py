"""Start, watch and end children, with all processes that they start, in any session.

A child is a new interpreter or a fork of a warm host. Either way it has a session and log files of
its own, and nothing on stdin. A session can be killed as a whole. A program that leaves it, as
daemons do, is found by a random mark in its environment that no other process has.
"""

from __future__ import annotations

import math
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

import psutil

from autotune.configuration.job import Job
from autotune.process.common.child_ties import lifeline
from autotune.process.common.process_tree import MemoryPeak
from autotune.process.common.trial_folder import TIMED, TrialFolder, read_some
from autotune.process.ranks import Ranks, launch_command
from autotune.values.errors import TooManyLostError
from autotune.values.outcome import (
    Crashed,
    Lost,
    OutOfMemory,
    TimedOut,
    TrialOutcome,
    outcome_from_json,
)
from autotune.values.text import signal_name

_MARK = "AUTOTUNE_FAMILY"
_POLL_SECONDS = 0.02
SAMPLE_SECONDS = 1.0
"""Seconds between two looks at a running child; see `autotune.process.common.process_tree`."""
_SHARED = Path("/dev/shm")  # noqa: S108 (where Linux keeps shared memory)
# Seconds after which torch's launcher kills ranks that it asked to end; older versions take 30.
_SHUTDOWN = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
_HALF = 4 << 20
MOST_BYTES = 2 * _HALF
"""Bytes of a log after its trial, apart from a line that says that some were left out."""
_MOST_BYTES_MEANWHILE = 4 * MOST_BYTES
# Line at the place where a log was cut.
_LEFT_OUT = b"\n... autotune left out the middle ...\n"


class Launched(Protocol):
    """A child process that was started."""

    pid: int
    """Process number, which is also that of its process group."""
    host_pid: int | None
    """Number of the process from which it was forked and whose memory it shares, if any."""
    exit_code: int | None
    """Exit code, negative for a signal; None while it runs, or if it is unknown."""

    def ended_within(self, seconds: float) -> bool:
        """Sleep until it ends, at most `seconds`; return True if it ended."""


class FreshInterpreter:
    """A child that runs in a new Python interpreter, or a launcher of several such children."""

    host_pid: int | None = None
    exit_code: int | None = None

    def __init__(self, job: Job, files: TrialFolder, environ: Mapping[str, str]) -> None:
        child = [str(files.path), lifeline(), repr(time.monotonic())]
        words = ["autotune.process.child.main", *child]
        if job.is_of_ranks:
            call = [*launch_command(job, files), *child]
            words = ["autotune.process.child.launcher", lifeline(), *call]
            environ = {_SHUTDOWN: "1", **environ}
        for log in (files.stdout, files.stderr):
            log.write_bytes(b"")
        # Append mode, so that the logs can be cut while the child goes on writing.
        with files.stdout.open("ab") as stdout, files.stderr.open("ab") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *words],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env={**os.environ, **environ},
                start_new_session=True,
            )
        self.pid = self._process.pid

    def ended_within(self, seconds: float) -> bool:
        """Sleep until it ends, at most `seconds`; return True if it ended."""
        if self._process.poll() is None and ended_within(self._process, seconds):
            self._process.wait()
        self.exit_code = self._process.returncode
        return self.exit_code is not None


def ended_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Sleep until a process ends, at most `seconds`; return True if it ended.

    `Popen.wait` with a limit would ask up to twenty times a second, and disturb what is timed.
    """
    try:
        watched = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # another system, or a kernel that has none
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        return process.returncode is not None
    try:
        ending = select.poll()
        ending.register(watched, select.POLLIN)
        return bool(ending.poll(math.ceil(seconds * 1000)))
    finally:
        os.close(watched)


class Patience(NamedTuple):
    """Seconds to wait for processes to end before they are killed."""

    grace: float
    """Seconds for the child itself."""
    tidy: float
    """Seconds for helpers in its session."""
    strays: float
    """Seconds for processes that have left the session."""
    killed: float
    """Seconds for the child to end after SIGKILL."""


PATIENT = Patience(3.0, 1.0, 3.0, 30.0)
HURRIED = Patience(1.0, 0.3, 2.2, 1.0)
"""Patience for a person who waits, below five seconds in all.

PyTorch's helper that frees shared memory needs two.
"""
# Seconds in which a launcher ends the other ranks once one has failed, or rank 0 has answered.
_LAUNCHER_SECONDS = {True: 2.0, False: 5.0}


class Family:
    """All processes with one mark; none should be left between two trials.

    The mark never matches a foreign process, as a name or a reused process number might.
    """

    def __init__(self) -> None:
        self._mark = secrets.token_hex(8)

    @property
    def environ(self) -> Mapping[str, str]:
        """Environment variables that mark a process, and all that it starts, as a member."""
        return {_MARK: self._mark}

    def is_gone_within(self, seconds: float, hosts: frozenset[int]) -> bool:
        """Wait until no member is left outside the sessions of hosts; return False in vain."""
        deadline = time.monotonic() + seconds
        while next(self._strays(hosts), None) is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def kill(self, hosts: frozenset[int]) -> None:
        """Kill all members outside the sessions of hosts."""
        for process in self._strays(hosts):
            with suppress(psutil.Error):
                process.kill()

    def pids(self, hosts: frozenset[int]) -> set[int]:
        """Return the PIDs of all members outside the sessions of hosts."""
        return {process.pid for process in self._strays(hosts)}

    def _strays(self, hosts: frozenset[int]) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):  # another user's process, or it has ended
                is_mine = process.environ().get(_MARK) == self._mark
                if is_mine and os.getsid(process.pid) not in hosts:
                    yield process


class RunningChild:
    """A running child process and the processes that it starts."""

    def __init__(self, process: Launched, files: TrialFolder, ranks: Ranks | None = None) -> None:
        """Watch a process; `ranks` are those that it starts if it is a launcher."""
        self.process = process
        self._files = files
        self._ranks = ranks
        self.begun = time.monotonic()
        """Monotonic time from which the deadline counts."""
        self._peak = MemoryPeak(process.pid, process.host_pid)
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
        limit = job.memory_limit_bytes if job.device == "cpu" else job.host_limit_bytes
        until = math.inf
        while not self.process.ended_within(SAMPLE_SECONDS):
            self._look(limit)
            if self._ranks is not None:
                if self._ranks.has_failed or self._files.outcome.exists():
                    patience = _LAUNCHER_SECONDS[self._ranks.has_failed]
                    until = min(until, time.monotonic() + patience)
                if time.monotonic() > until:
                    break
                if lost := self._ranks.look():
                    return lost
            if is_cancelled():
                raise KeyboardInterrupt
            if limit is not None and self.peak_bytes > limit:
                return OutOfMemory("host", f"passed the limit of {limit} bytes", self.peak_bytes)
            if time.monotonic() > deadline:
                phase = self._files.phase if self._ranks is None else self._ranks.phase
                return TimedOut(phase, job.deadline_seconds)
        if not self._files.outcome.exists():
            return None
        return outcome_from_json(read_some(self._files.outcome))

    def end(self, family: Family, hosts: frozenset[int], patience: Patience) -> None:
        """End the child, then the rest of its session, then processes that left the session.

        Raises:
            TooManyLostError: the child outlives SIGKILL, so that nothing more can be run on its
                device.
        """
        is_stuck = False
        pids = {self.process.pid, *self._seen, *family.pids(hosts)}
        if not self.process.ended_within(0):
            self._signal(signal.SIGTERM)
            if not self.process.ended_within(patience.grace):
                if self._ranks is not None:
                    self._ranks.kill()
                with suppress(ProcessLookupError):
                    os.kill(self.process.pid, signal.SIGKILL)
                is_stuck = not self.process.ended_within(patience.killed)
        elif self._ranks is not None and self.process.exit_code != 0:  # it has died before them
            self._ranks.kill()
            family.kill(hosts)
        # Helpers free shared memory once its users have ended: Python's at once, PyTorch's, which
        # has a session of its own, after two seconds.
        self._signal(signal.SIGTERM)
        is_gone = family.is_gone_within(patience.tidy, hosts)
        self._signal(signal.SIGKILL)
        if not is_gone and not family.is_gone_within(patience.strays, hosts):
            family.kill(hosts)
        for process in (*self._gone, *self._seen.values()):
            with suppress(psutil.Error):
                process.kill()  # psutil compares start times: a reused number is not killed
        free_shared_memory(pids, self._files.job)
        if is_stuck:
            raise TooManyLostError(
                f"process {self.process.pid} cannot be ended: {patience.killed:g} s after SIGKILL "
                "it is still there. It waits inside the kernel, for a driver that hangs or for a "
                "network file system, and keeps its device. Finished trials are kept. Reset the "
                "device or restart the machine; then the same command continues."
            )

    def outcome_of_exit(self) -> TrialOutcome:
        """Return the outcome of a child that ended without one, from its exit code."""
        code = self.process.exit_code
        if self._ranks is not None and (lost := self._ranks.of_exit(code)):
            return lost
        if code is None:
            return Lost("the fork server was killed, so it is unknown how its child ended")
        if code < 0:
            if -code == signal.SIGBUS:
                return OutOfMemory("shared", "bus error: /dev/shm is full", self.peak_bytes or None)
            return Crashed(f"killed by {signal_name(-code)}")
        return Crashed(f"exited with code {code} without a result")

    def _look(self, limit: int | None) -> None:
        """Record the child's processes and their memory, and limit its logs.

        While blocks are timed, memory is read only near its limit; the child reads it in between.
        """
        for log in self._files.logs:
            shorten(log, _MOST_BYTES_MEANWHILE)
        is_timed = self._files.phase in TIMED
        pids = self._peak.look((math.inf if limit is None else limit) if is_timed else 0)
        # With their start time, because numbers may be reused.
        self._gone += [self._seen.pop(pid) for pid in set(self._seen) - set(pids)]
        for pid in pids:
            if pid not in self._seen:
                with suppress(psutil.Error):
                    self._seen[pid] = psutil.Process(pid)

    def _signal(self, number: int) -> None:
        # The child may have ended while its DataLoader workers live on.
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def free_shared_memory(pids: Iterable[int], begun: Path) -> None:
    """Remove tensors that ended processes have left in shared memory.

    PyTorch creates a file `torch_PID_...` for a tensor, fills it with zeros, and removes its name.
    A DataLoader worker that is killed between the two leaves the file for good.

    The file `begun` was written before they started; older tensors are of others with a reused PID.
    Without it, nothing is removed.
    """
    since = begun.stat().st_mtime if begun.exists() else math.inf
    for pid in pids:
        for path in _SHARED.glob(f"torch_{pid}_*"):
            with suppress(OSError):
                found = path.stat()
                if found.st_uid == os.getuid() and found.st_mtime >= since:
                    path.unlink()


def shorten(log: Path, most_bytes: int = 0) -> None:
    """Leave out the middle of a log of more than `most_bytes`, or `MOST_BYTES` if these are more.

    Of a log that is still being written, what is printed in that moment may be lost.
    """
    with suppress(OSError), log.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        if size <= max(most_bytes, MOST_BYTES) + len(_LEFT_OUT):
            return
        file.seek(size - _HALF)
        end = file.read()
        file.truncate(_HALF)
        with log.open("ab") as behind:  # after what was written meanwhile
            behind.write(_LEFT_OUT + end)
