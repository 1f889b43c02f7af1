"""Limit the size of logs: the beginning and the end of a trial's output are kept.

While a trial goes on writing, the space of its log's middle is given back and nothing moves, since
what is cut and written anew would miss lines that are printed meanwhile.
"""

from __future__ import annotations

import ctypes
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
_BLOCK = 512  # bytes, of `st_blocks`
_PUNCH_HOLE_AND_KEEP_SIZE = 3


def hold_down(log: Path) -> None:
    """Give back space of a log that is still being written, if it takes far too much."""
    with suppress(OSError):
        found = log.stat()
        taken = found.st_blocks * _BLOCK if hasattr(found, "st_blocks") else found.st_size
        if taken > _MOST_BYTES_MEANWHILE and not _free_middle(log):
            _cut(log, _MOST_BYTES_MEANWHILE)


def shorten(log: Path) -> None:
    """Leave out the middle of a long log that is complete."""
    with suppress(OSError):
        if log.stat().st_size > MOST_BYTES:
            _cut(log, MOST_BYTES)


def _free_middle(log: Path) -> bool:
    """Give back the space of the middle, which reads as zeros; return False if that cannot be done.

    Only Linux can, and not each of its file systems. See fallocate(2).
    """
    start = _HALF + _LONGEST_LINE
    with log.open("rb+") as file:
        length = file.seek(0, os.SEEK_END) - _HALF - start
        try:
            fallocate = ctypes.CDLL(None).fallocate
        except (AttributeError, OSError, TypeError):  # other systems
            return False
        sizes = (ctypes.c_int64(start), ctypes.c_int64(length))
        return bool(fallocate(file.fileno(), _PUNCH_HOLE_AND_KEEP_SIZE, *sizes) == 0)


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
