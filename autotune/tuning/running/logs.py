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
_MOST_BYTES_MEANWHILE = 4 * MOST_BYTES


def hold_down(log: Path) -> None:
    """Shorten a log that someone is writing, where it grew far too long."""
    _shorten(log, _MOST_BYTES_MEANWHILE)


def shorten(log: Path) -> None:
    """Leave out the middle of a long log that nobody writes any more."""
    _shorten(log, MOST_BYTES)


def _shorten(log: Path, most_bytes: int) -> None:
    with suppress(OSError):
        size = log.stat().st_size
        if size <= most_bytes:
            return
        with log.open("rb+") as file:
            file.seek(-_HALF, os.SEEK_END)
            end = file.read()
            file.truncate(_HALF)
        with log.open("ab") as file:  # behind what was written meanwhile
            file.write(f"\n... autotune left out {size - MOST_BYTES} bytes ...\n".encode() + end)
