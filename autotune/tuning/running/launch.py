"""How a child process comes to be: a fresh interpreter, or a fork of a warm host.

Either way it has a session, log files and a lifeline of its own, and nothing on stdin.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from select import select
from typing import Any, Protocol

import psutil

from autotune.channel import channel, receive, send
from autotune.job import Job
from autotune.trial_folder import TrialFolder

# Importing torch on a machine that is busy with something else.
_HOST_PATIENCE_SECONDS = 120.0


class Launched(Protocol):
    """A child process that was started."""

    @property
    def pid(self) -> int:
        """Its number, which is that of its process group too."""

    @property
    def host_pid(self) -> int | None:
        """The process that it shares memory with, but for which it would hold that alone."""

    @property
    def exit_code(self) -> int | None:
        """Negative for a signal; None while it runs, or where nobody can tell any more."""

    def ended_within(self, seconds: float | None) -> bool:
        """Sleep until it ends, at most so long; whether it did."""


class FreshInterpreter:
    """A child started as any Python program is."""

    host_pid: int | None = None

    def __init__(self, files: TrialFolder, environ: Mapping[str, str], lifeline: int) -> None:
        module = ("-m", "autotune.training.worker", str(files.path), str(lifeline))
        for log in (files.stdout, files.stderr):
            log.write_bytes(b"")
        # For appending, so that they can be cut while the child goes on writing.
        with files.stdout.open("ab") as stdout, files.stderr.open("ab") as stderr:
            # psutil's waits for the end asleep, where subprocess' looks again and again.
            self._process = psutil.Popen(
                [sys.executable, *module, repr(time.monotonic())],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env={**os.environ, **environ},
                start_new_session=True,
                pass_fds=(lifeline,),
            )

    @property
    def pid(self) -> int:
        """Its number."""
        return int(self._process.pid)

    @property
    def exit_code(self) -> int | None:
        """Negative for a signal; None while it runs."""
        code = self._process.returncode
        return None if code is None else int(code)

    def ended_within(self, seconds: float | None) -> bool:
        """Sleep until it ends, at most so long; whether it did."""
        with suppress(psutil.TimeoutExpired, subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self.exit_code is not None


class Forked:
    """A child forked from a warm host, which alone can wait for it."""

    def __init__(self, pid: int, host: WarmHost) -> None:
        self.pid = pid
        self.host_pid: int | None = host.pid
        self.exit_code: int | None = None
        self._host = host
        self._ended = False

    def ended_within(self, seconds: float | None) -> bool:
        """Sleep until it ends, at most so long; whether it did."""
        if not self._ended and self._host.answers_within(seconds):
            exit_code = self._host.answer().get("exit_code")
            self.exit_code = exit_code if isinstance(exit_code, int) else None
            self._ended = True
        return self._ended


class WarmHost:
    """A process that has imported torch and forks a child for each job; Linux only."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._end, other_end = channel()
        self._end.settimeout(_HOST_PATIENCE_SECONDS)
        lifeline, self._lifeline_end = os.pipe()
        ends = (other_end.fileno(), lifeline)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "autotune.training.host", *map(str, ends)],
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
        """Its number."""
        return self._process.pid

    def fork(self, job: Job, files: TrialFolder, lifeline: int) -> Forked | str | None:
        """A child for the job, or why this host refuses; None where the host is gone."""
        request = {
            "folder": str(files.path),
            "model_path": job.model_path,
            "is_script": job.script is not None,
            "start": time.monotonic(),
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
        """Sleep until there is an answer to read, at most so long; whether there is."""
        return bool(select([self._end], [], [], seconds)[0])

    def answer(self) -> dict[str, Any]:
        """The next answer; empty where the host is gone.

        Raises:
            TimeoutError: the host said nothing for a long time.
        """
        return receive(self._end)[0] or {}

    def close(self) -> None:
        """End the host; its children have ended before."""
        self._end.close()
        os.close(self._lifeline_end)
        self._process.kill()
        self._process.wait()
