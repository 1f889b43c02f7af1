"""Logs that fill no disk: of what a trial prints, the beginning and the end are kept.

They are open for appending, so that they can be cut while the trial goes on writing.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

_HALF = 4 << 20
MOST_BYTES = 2 * _HALF
"""Of one log once its trial has ended, but for a line that says what was left out."""
_MOST_BYTES_MEANWHILE = 4 * MOST_BYTES
# Stands where a log was cut before, and is counted then.
_LEFT_OUT = re.compile(rb"\n\.\.\. autotune left out (\d{1,18}) bytes \.\.\.\n")
_LONGEST_LINE = 100


def hold_down(log: Path) -> None:
    """Shorten a log that someone is writing, where it grew far too long."""
    _shorten(log, _MOST_BYTES_MEANWHILE)


def shorten(log: Path) -> None:
    """Leave out the middle of a long log that nobody writes any more."""
    _shorten(log, MOST_BYTES)


def _shorten(log: Path, most_bytes: int) -> None:
    with suppress(OSError), log.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(_HALF)
        earlier = _LEFT_OUT.match(file.read(_LONGEST_LINE))
        printed = size - len(earlier[0]) if earlier else size
        if printed <= most_bytes:
            return
        left_out = printed - MOST_BYTES + (int(earlier[1]) if earlier else 0)
        file.seek(size - _HALF)
        end = file.read()
        file.truncate(_HALF)
        with log.open("ab") as behind:  # what was written meanwhile
            behind.write(b"\n... autotune left out %d bytes ...\n" % left_out + end)
