"""Keep files as they were before a run of the script changes or deletes them.

A trial trains a few steps, but a script may save at the end of a short epoch, and a checkpoint of
the user's real training may have that name. So a copy is made of whatever was written before the
search. A hard link would take no space, but the script can still write into the file that it names.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain, count
from pathlib import Path

from autotune.configuration.script import Keep

# A larger file that is changed in place, such as a memory map, is data and no result.
_MOST_BYTES_IN_PLACE = 64 << 20
_SECOND_NS = 10**9


class KeptFiles:
    """A folder of kept files, each below its own path; `NAME~2` is another one of that name."""

    def __init__(self, keep: Keep) -> None:
        self._folder, self._since = Path(keep.folder), keep.since

    @property
    def folder(self) -> str:
        """The folder, or empty text if there is none yet, as nothing had to be kept."""
        return str(self._folder) if self._folder.is_dir() else ""

    def keep_content(self, place: str, is_emptied: bool) -> None:
        """Keep a file whose content is about to change.

        Args:
            place: absolute path of the file, or of a link to it.
            is_emptied: True if it is written anew; False if it is changed in place or appended to.

        Raises:
            OSError: it cannot be kept.
        """
        self._keep(Path(place).resolve(), None if is_emptied else _MOST_BYTES_IN_PLACE)

    def keep_entry(self, place: str) -> None:
        """Keep a file or link, or all of a folder, that is about to be deleted or replaced.

        Raises:
            OSError: it cannot be kept.
        """
        for path in _files_below(Path(place)):
            self._keep(path)

    def keep_database(self, place: str) -> None:
        """Keep an SQLite database, and what SQLite writes beside it, as before a change in place.

        The copy is of two moments if another program writes meanwhile. It is made once: to close a
        database that this process has open elsewhere would drop SQLite's locks.

        Raises:
            OSError: it cannot be kept.
        """
        for path in database_files(place):
            self.keep_content(str(path), is_emptied=False)

    def _keep(self, path: Path, most_bytes: int | None = None) -> None:
        """Copy a file or link, unless a run of the script wrote it or it is kept already."""
        with suppress(FileNotFoundError):  # another process of the script was faster
            found = path.lstat()
            is_kind = stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)
            # Renaming a file or changing its mode leaves the time at which it was written.
            is_of_runs = min(found.st_mtime, found.st_ctime) > self._since
            is_large = most_bytes is not None and found.st_size > most_bytes
            if is_kind and not is_of_runs and not is_large and (kept := self._free(path, found)):
                with _beside(kept) as beside:
                    shutil.copyfile(path, beside, follow_symlinks=False)
                    with suppress(OSError):
                        shutil.copymode(path, beside, follow_symlinks=False)
                    times = (found.st_atime_ns, found.st_mtime_ns)
                    os.utime(beside, ns=times, follow_symlinks=False)
                    _publish(beside, kept)

    def _free(self, path: Path, found: os.stat_result) -> Path | None:
        """Return a free name for the copy of a file; None if there is a copy already."""
        first = self._folder / str(path).lstrip("/")
        others = (first.with_name(f"{first.name}~{number}") for number in count(2))
        for kept in chain([first], others):
            try:
                there = kept.lstat()
            except FileNotFoundError:
                kept.parent.mkdir(parents=True, exist_ok=True)
                return kept
            if there.st_size == found.st_size and _written_alike(there, found):
                return None
        raise AssertionError


def database_files(place: str) -> tuple[Path, ...]:
    """Return the files of an SQLite database: itself, its write-ahead log and its journal."""
    file = Path(place).resolve()
    return (file, Path(f"{file}-wal"), Path(f"{file}-journal"))


def _written_alike(kept: os.stat_result, found: os.stat_result) -> bool:
    """Return True for equal times; some file systems store those of a copy in even seconds."""
    apart = abs(kept.st_mtime_ns - found.st_mtime_ns)
    return apart == 0 or (kept.st_mtime_ns % _SECOND_NS == 0 and apart < 2 * _SECOND_NS)


def _files_below(path: Path) -> Iterator[Path]:
    if not path.is_dir() or path.is_symlink():
        yield path
        return
    with suppress(FileNotFoundError):
        for inner in path.iterdir():
            yield from _files_below(inner)


@contextmanager
def _beside(kept: Path) -> Iterator[Path]:
    """Yield a name beside a file, so that the file is there whole or not at all."""
    beside = kept.with_name(f".{secrets.token_hex(8)}")
    try:
        yield beside
    finally:
        beside.unlink(missing_ok=True)


def _publish(beside: Path, kept: Path) -> None:
    """Give a whole copy its name; another process's copy stays, since it may be the earlier one."""
    try:
        os.link(beside, kept, follow_symlinks=False)
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        beside.replace(kept)
