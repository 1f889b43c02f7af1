"""Find all processes that a runner started, at any depth and in any session.

A session can be killed as a whole, but a program may leave it, as daemons do. It keeps its
environment, which has a random mark that no other process has.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress

import psutil

_MARK = "AUTOTUNE_FAMILY"
_POLL_SECONDS = 0.02


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

    def is_gone_within(self, seconds: float, host_pid: int | None) -> bool:
        """Wait until no member is left outside the host's session; return False if time is up."""
        deadline = time.monotonic() + seconds
        while next(self._strays(host_pid), None) is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def kill(self, host_pid: int | None) -> None:
        """Kill all members outside the host's session."""
        for process in self._strays(host_pid):
            with suppress(psutil.Error):
                process.kill()

    def _strays(self, host_pid: int | None) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):  # another user's process, or it has ended
                is_mine = process.environ().get(_MARK) == self._mark
                if is_mine and os.getsid(process.pid) != host_pid:
                    yield process
