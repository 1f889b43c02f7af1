"""Keep files as they were before a run of the script overwrites or deletes them.

A trial trains a few steps, but a script may save at the end of a short epoch, and a checkpoint of
the user's real training may have that name. So whatever was there before the search is kept, by a
hard link where the script deletes or replaces it, and by a copy where it writes into it.
"""

from __future__ import annotations

import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from autotune.configuration.script import Keep

# A larger file that is changed in place, such as a memory map, is data and no result.
_MOST_BYTES_IN_PLACE = 64 << 20


class KeptFiles:
    """A folder of kept files, each below its own path, as the first run found it."""

    def __init__(self, keep: Keep) -> None:
        self._folder, self._since = Path(keep.folder), keep.since

    def keep_content(self, place: str, is_emptied: bool) -> None:
        """Keep a file whose content is about to change.

        Args:
            place: absolute path of the file.
            is_emptied: True if it is written anew; False if it is changed in place or appended to.

        Raises:
            OSError: it cannot be kept.
        """
        path = Path(place)
        if path.exists() and (is_emptied or path.stat().st_size <= _MOST_BYTES_IN_PLACE):
            self._keep(path, shutil.copyfile)

    def keep_entry(self, place: str) -> None:
        """Keep a file, or all files of a folder, whose entry is about to be deleted or replaced.

        Raises:
            OSError: it cannot be kept.
        """
        for path in _files_below(Path(place)):
            if not path.is_symlink():
                self._keep(path, _link_or_copy)

    def _keep(self, path: Path, transfer: Callable[[Path, Path], object]) -> None:
        """Keep a file unless a run of the script made it, or it is kept already."""
        kept, found = self._folder / path.relative_to("/"), path.stat()
        # Renaming a file or changing its mode leaves the time at which it was written.
        is_of_runs = min(found.st_mtime, found.st_ctime) >= self._since
        if is_of_runs or not stat.S_ISREG(found.st_mode) or kept.exists():
            return
        kept.parent.mkdir(parents=True, exist_ok=True)
        with _beside(kept) as beside:
            transfer(path, beside)
            with suppress(OSError):  # the time of change is a help, not the content
                shutil.copystat(path, beside)
            beside.replace(kept)


def _files_below(path: Path) -> Iterator[Path]:
    if not path.is_dir() or path.is_symlink():
        yield path
        return
    for inner in path.iterdir():
        yield from _files_below(inner)


def _link_or_copy(path: Path, kept: Path) -> None:
    try:
        kept.hardlink_to(path)
    except OSError:  # another file system, or one without links
        shutil.copyfile(path, kept)


@contextmanager
def _beside(kept: Path) -> Iterator[Path]:
    """Yield a name beside a file, so that the file is there whole or not at all."""
    beside = kept.with_name(f".{kept.name}.{secrets.token_hex(4)}")
    try:
        yield beside
    finally:
        beside.unlink(missing_ok=True)
