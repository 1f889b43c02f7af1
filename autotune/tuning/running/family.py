"""The processes that a runner started, at any depth and in any session, known by a mark.

A session can be killed as a whole, but a program may leave it, as daemons do. It keeps the
environment it was started with, and there the mark stands: nobody else's process has it.
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
    """All processes with one mark; to be looked for between two trials, when there should be none.

    Killing by the mark hits no innocent, unlike by name or by a number that was seen before.
    """

    def __init__(self) -> None:
        self._mark = secrets.token_hex(8)

    @property
    def environ(self) -> Mapping[str, str]:
        """What a process has to be started with to belong to it."""
        return {_MARK: self._mark}

    def is_gone_within(self, seconds: float, host_pid: int | None) -> bool:
        """Whether nobody outside of the host's session is left, or all go within some seconds."""
        deadline = time.monotonic() + seconds
        while next(self._strays(host_pid), None) is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def kill(self, host_pid: int | None) -> None:
        """End everyone outside of the host's session."""
        for process in self._strays(host_pid):
            with suppress(psutil.Error):
                process.kill()

    def _strays(self, host_pid: int | None) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):  # another's, or gone meanwhile
                is_mine = process.environ().get(_MARK) == self._mark
                if is_mine and os.getsid(process.pid) != host_pid:
                    yield process
