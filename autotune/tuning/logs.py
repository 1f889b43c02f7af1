"""Logs that fill no disk: of what a trial prints, the beginning and the end are kept.

They are open for appending, so that they can be cut while the trial goes on writing.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_HALF = 4 << 20
MOST_BYTES = 2 * _HALF
"""Of one log once its trial has ended, but for a line that says what was left out."""


def hold_down(log: Path) -> None:
    """Cut a log that someone is writing back to its beginning, where it grew far too long."""
    with suppress(OSError):
        if log.stat().st_size > 4 * MOST_BYTES:
            os.truncate(log, _HALF)


def shorten(log: Path) -> None:
    """Leave out the middle of a long log that nobody writes any more."""
    with suppress(OSError):
        size = log.stat().st_size
        if size <= MOST_BYTES:
            return
        with log.open("rb+") as file:
            file.seek(size - _HALF)
            end = file.read()
            file.truncate(_HALF)
            file.seek(_HALF)
            file.write(f"\n... autotune left out {size - MOST_BYTES} bytes ...\n".encode() + end)
