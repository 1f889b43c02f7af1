"""Limit the size of logs: the beginning and the end of a trial's output are kept.

Logs are open in append mode, so that they can be cut while the trial goes on writing.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

_HALF = 4 << 20
MOST_BYTES = 2 * _HALF
"""Bytes of a log after its trial, apart from a line that says how much was left out."""
_MOST_BYTES_MEANWHILE = 4 * MOST_BYTES
# Line at the place where a log was cut; its number is added up if it is cut again.
_LEFT_OUT = re.compile(rb"\n\.\.\. autotune left out (\d{1,18}) bytes \.\.\.\n")
_LONGEST_LINE = 100


def hold_down(log: Path) -> None:
    """Shorten a log that is still being written, if it has grown far too long."""
    _shorten(log, _MOST_BYTES_MEANWHILE)


def shorten(log: Path) -> None:
    """Leave out the middle of a long log that is complete."""
    _shorten(log, MOST_BYTES)


def _shorten(log: Path, most_bytes: int) -> None:
    with suppress(OSError):
        if log.stat().st_size > most_bytes:
            _cut(log, most_bytes)


def _cut(log: Path, most_bytes: int) -> None:
    with log.open("rb+") as file:
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
        with log.open("ab") as behind:  # after what was written meanwhile
            behind.write(b"\n... autotune left out %d bytes ...\n" % left_out + end)
