"""Start a child process: as a new interpreter or as a fork of a warm host.

Either way it has a session, log files and a lifeline of its own, and nothing on stdin.
"""

from __future__ import annotations

import math
import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from autotune.configuration.job import Job
from autotune.processes.ranks import write_program
from autotune.system.child_ties import channel, place_of, receive, send
from autotune.system.trial_folder import TrialFolder

HOST_PATIENCE_SECONDS = 120.0
"""Seconds to wait for a warm host: it may import torch on a busy machine."""
# Seconds for a killed host to be gone; a longer wait is inside the kernel and may have no end.
_KILLED_SECONDS = 10.0
# Seconds after which torch's launcher kills ranks that it asked to end; older versions take 30.
_SHUTDOWN = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"


class Launched(Protocol):
    """A child process that was started."""

    @property
    def pid(self) -> int:
        """Process number, which is also that of its process group."""

    @property
    def host_pid(self) -> int | None:
        """Number of the process from which it was forked and whose memory it shares, if any."""

    @property
    def exit_code(self) -> int | None:
        """Exit code, negative for a signal; None while it runs, or if it is unknown."""

    def ended_within(self, seconds: float | None) -> bool:
        """Sleep until it ends, at most `seconds` if given; return True if it ended."""


class FreshInterpreter:
    """A child that runs in a new Python interpreter, or a launcher of several such children."""

    host_pid: int | None = None

    def __init__(
        self,
        python: Path,
        job: Job,
        files: TrialFolder,
        environ: Mapping[str, str],
        lifeline: int,
    ) -> None:
        place, start = str(files.path), repr(time.monotonic())
        words = ["autotune.child.main", place, str(lifeline), start]
        if job.launch:
            program = str(write_program(files, python, environ))
            call = (*job.launch, program, place, place_of(lifeline), start)
            words = ["autotune.child.launchers", "own", str(lifeline), *call]
        elif job.processes > 1:
            ranks = (str(job.processes), place, place_of(lifeline), start)
            words = ["autotune.child.launchers", "torch", *ranks]
        if job.is_of_ranks:
            environ = {_SHUTDOWN: "1", **environ}
        for log in (files.stdout, files.stderr):
            log.write_bytes(b"")
        # Append mode, so that the logs can be cut while the child goes on writing.
        with files.stdout.open("ab") as stdout, files.stderr.open("ab") as stderr:
            self._process = subprocess.Popen(
                [python, "-m", *words],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env={**os.environ, **environ},
                start_new_session=True,
                pass_fds=(lifeline,),
            )

    @property
    def pid(self) -> int:
        """Process number."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Exit code, negative for a signal; None while it runs."""
        return self._process.returncode

    def ended_within(self, seconds: float | None) -> bool:
        """Sleep until it ends, at most `seconds` if given; return True if it ended."""
        if self._process.poll() is None and _has_ended(self._process, seconds):
            self._process.wait()
        return self.exit_code is not None


def _has_ended(process: subprocess.Popen[bytes], seconds: float | None) -> bool:
    """Sleep until a process ends, at most `seconds` if given; return True if it ended.

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
        return bool(ending.poll(None if seconds is None else math.ceil(seconds * 1000)))
    finally:
        os.close(watched)


class Forked:
    """A child forked from a warm host; the host reports when it ends."""

    def __init__(self, pid: int, host: WarmHost) -> None:
        self.pid = pid
        self.host_pid: int | None = host.pid
        self.exit_code: int | None = None
        self._host = host
        self._ended = False

    def ended_within(self, seconds: float | None) -> bool:
        """Sleep until it ends, at most `seconds` if given; return True if it ended."""
        if not self._ended and self._host.answers_within(seconds):
            exit_code = self._host.answer().get("exit_code")
            self.exit_code = exit_code if isinstance(exit_code, int) else None
            self._ended = True
        return self._ended


class Building:
    """A warm host that imports a workload and builds its dataset; it may fail as a child may."""

    host_pid: int | None = None

    def __init__(self, host: WarmHost, files: TrialFolder) -> None:
        self.pid = host.pid
        self.exit_code: int | None = None
        self._host = host
        self._answer: dict[str, Any] | None = host.asked_to_build(files)

    @property
    def is_done(self) -> bool:
        """True once forks find the dataset built."""
        return "built" in (self._answer or {})

    @property
    def has_spoilt_host(self) -> bool:
        """True if the host ran the workload but has no dataset for its forks."""
        return not {"built", "unchanged"} & set(self._answer or {})

    @property
    def reason(self) -> str:
        """Reason why forks have no dataset."""
        said = next(iter((self._answer or {}).values()), None)
        return str(said or "the warm host ended, or was ended, while it built it")

    def begins_within(self, seconds: float) -> bool:
        """Sleep until the host begins or refuses, at most `seconds`; return True if it did."""
        if self._answer is None and self._host.answers_within(seconds):
            self._hear()
            return True
        return self._answer is not None

    def ended_within(self, seconds: float | None) -> bool:
        """Sleep until building ended or failed, at most `seconds`; return True if it did."""
        if self._answer is None and self._host.answers_within(seconds):
            self._hear()
        return self._answer is not None

    def _hear(self) -> None:
        answer = self._host.answer()
        self._answer = None if "begins" in answer else answer


class WarmHost:
    """A process that has imported torch and forks a child for each job; Linux only."""

    def __init__(self, python: Path, environ: Mapping[str, str]) -> None:
        self._end, other_end = channel()
        self._end.settimeout(HOST_PATIENCE_SECONDS)
        lifeline, self._lifeline_end = os.pipe()
        ends = (other_end.fileno(), lifeline)
        try:
            self._process = subprocess.Popen(
                [python, "-m", "autotune.child.warm_host", *map(str, ends)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **environ},
                start_new_session=True,
                pass_fds=ends,
            )
        except OSError:
            self._end.close()
            os.close(self._lifeline_end)
            raise
        finally:
            other_end.close()
            os.close(lifeline)

    @property
    def pid(self) -> int:
        """Process number."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """True once the process has ended."""
        return self._process.poll() is not None

    def asked_to_build(self, files: TrialFolder) -> dict[str, Any] | None:
        """Ask the host to build the dataset of a folder's job; return {} if the host has ended."""
        try:
            send(self._end, {"build": str(files.path)})
        except OSError:
            return {}
        return None

    def fork(
        self,
        job: Job,
        files: TrialFolder,
        lifeline: int,
        keep_logs: bool,
        packages: Sequence[str] = (),
    ) -> Forked | str | None:
        """Fork a child for the job; return why the host refuses, or None if the host has ended.

        With `keep_logs` the child appends to the logs; the host has printed to them already. The
        host imports `packages` first.
        """
        request = {
            "folder": str(files.path),
            "model_path": job.model_path,
            "is_script": job.script is not None,
            "packages": packages,
            "start": time.monotonic(),
            "keep_logs": keep_logs,
        }
        try:
            send(self._end, request, [lifeline])
            answer = self.answer()
        except OSError:
            return None
        if isinstance(answer.get("pid"), int):
            return Forked(answer["pid"], self)
        return str(answer["refused"]) if "refused" in answer else None

    def answers_within(self, seconds: float | None) -> bool:
        """Sleep until there is an answer to read, at most `seconds`; return True if there is."""
        return bool(select.select([self._end], [], [], seconds)[0])

    def answer(self) -> dict[str, Any]:
        """Return the next answer; {} if the host has ended.

        Raises:
            TimeoutError: the host sent nothing for `HOST_PATIENCE_SECONDS`.
        """
        return receive(self._end)[0] or {}

    def close(self) -> None:
        """Kill the host; its children must have ended before."""
        self._end.close()
        os.close(self._lifeline_end)
        self._process.kill()
        _has_ended(self._process, _KILLED_SECONDS)
        self._process.poll()
