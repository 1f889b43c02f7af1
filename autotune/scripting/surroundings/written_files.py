"""Record the files that a process opens for writing, replaces or deletes, by Python's audit events.

Before each is changed, what was there is kept (`KeptFiles`); a forked process keeps files as well,
and notes none. Libraries that write in C or Rust raise no such event: a few are wrapped for that
(`savers`), and an SQLite database is kept as the script connects. Nor do other programs, and a name
relative to an open folder (`dir_fd`) tells no place.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import local
from typing import Any, NoReturn
from urllib.parse import parse_qs, unquote, urlsplit

from autotune.scripting.surroundings.kept_files import KeptFiles, database_files
from autotune.scripting.surroundings.savers import watch_savers

_WRITING = os.O_WRONLY | os.O_RDWR
_CACHES = ("~/.cache", "~/.triton", "~/.nv", "~/.config")
_CHANGES = {"os.rename", "os.truncate", "os.mkdir", "os.rmdir", "os.remove", "shutil.rmtree"}
_EVENTS = frozenset({"open", "sqlite3.connect", *_CHANGES})
_NOT_KEPT = (
    "it would change or delete {place}, of which no copy can be kept ({why}). Free some space, or "
    "let it write elsewhere, as by --workdir temporary"
)
# An event has -1 where a path is relative to no open folder.
_NO_FOLDER = -1
_SYSTEM = ("/dev", "/proc", "/sys")


Refuse = Callable[[str], NoReturn]


class WrittenFiles:
    """Files that this process wrote, from the call of `watch` on."""

    def __init__(self, own: Path, kept: KeptFiles | None, refuse: Refuse) -> None:
        """Prepare.

        Args:
            own: the trial's folder, in which files do not count.
            kept: where files are kept as they were; None to keep none.
            refuse: called with the reason before a file is changed that cannot be kept.
        """
        self._kept, self._refuse = kept, refuse
        self._busy = local()
        self._start = f"{Path.cwd()}/"
        # Asked for now: within an event, its own lock may be held.
        self._temporary = f"{os.path.realpath(tempfile.gettempdir())}/"
        named = (os.environ.get("TORCHINDUCTOR_CACHE_DIR"), os.environ.get("HF_HOME"))
        caches = map(os.path.realpath, (*map(os.path.expanduser, _CACHES), *filter(None, named)))
        # One that holds the current folder, and so perhaps a project, is more than a cache.
        alone = (place for place in caches if not self._start.startswith(f"{place}/"))
        left_out = (*_SYSTEM, os.path.realpath(own), *alone)
        # The compiler keeps some files in its own place wherever its cache is.
        compiler = f"{self._temporary}torchinductor_"
        self._left_out = (compiler, *(f"{path}/" for path in left_out))
        # On the clock of file systems: the folder was made for this process.
        self._began = own.stat().st_ctime
        self._created: set[str] = set()
        self._databases: dict[str, float] = {}
        """SQLite databases that existed before, each with its time of change then."""
        self.promised: set[str] = set()
        """Folders that are made once a file is about to be written into them."""
        self.folders: dict[str, None] = {}
        """Folders in which a file was written or made, in order."""
        self.overwritten: dict[str, None] = {}
        """Files that existed before and were written to or replaced."""
        self.deleted: dict[str, None] = {}
        """Files and folders that existed before and were deleted."""

    def watch(self) -> None:
        """Listen from now on, to the end of the process."""
        sys.addaudithook(self._hear)
        watch_savers(self.writes)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _EVENTS:
            return
        if getattr(self._busy, "is_keeping", False):  # keeping a file writes another one
            return
        with suppress(Exception):  # an error would make the script's own call fail
            match event, arguments:
                # A folder is opened for writing to hold a file without a name.
                case "open", (path, _, int(flags)) if flags & _WRITING and not _is_folder(path):
                    self.writes(path, is_emptied=bool(flags & os.O_TRUNC))
                case "os.truncate", (path, _):
                    self.writes(path)
                case "os.rename", (source, target, *folders) if set(folders) <= {_NO_FOLDER}:
                    self._deletes(source, is_moved=True)
                    self.writes(target, is_replaced=True)
                case "os.mkdir", (path, _, *folders) if set(folders) <= {_NO_FOLDER}:
                    self._made(path)
                case "os.remove" | "os.rmdir", (path, *folders) if set(folders) <= {_NO_FOLDER}:
                    self._deletes(path)
                case "shutil.rmtree", (path, *_):
                    self._deletes(path)
                case "sqlite3.connect", (path, *_):
                    self._connects(os.fsdecode(path))

    def _made(self, path: Any) -> None:
        if (place := self._counting(path)) and not os.path.lexists(place):
            self._keep_promise(place)
            self._created.add(place)
            if not self._is_temporary(place):
                self.folders[place] = None

    def _deletes(self, path: Any, is_moved: bool = False) -> None:
        """Note that a file or folder is about to go; what is only moved needs no keeping."""
        if (place := self._counting(path)) is None:
            return
        if not is_moved:
            self._keeping(place, KeptFiles.keep_entry)
        if self._was_there(place):
            self.deleted[place] = None

    def wrote(self, path: Path) -> bool:
        """Return True if a file was written or replaced."""
        return str(path) in self.overwritten or str(path) in self._created

    def writes(self, path: Any, is_replaced: bool = False, is_emptied: bool = True) -> None:
        """Note that a file is about to be replaced, written anew (emptied) or changed in place."""
        place = self._counting(path)
        if place is None:
            return
        self._keep_promise(place)
        if is_replaced:
            self._keeping(place, KeptFiles.keep_entry)
        else:
            self._keeping(place, partial(KeptFiles.keep_content, is_emptied=is_emptied))
        if not self._is_temporary(place):
            self.folders[os.path.dirname(place)] = None  # noqa: PTH120 - it stays text
        if not os.path.lexists(place):
            self._created.add(place)
        elif self._was_there(place):
            self.overwritten[place] = None

    def _keep_promise(self, place: str) -> None:
        folder = os.path.dirname(place)  # noqa: PTH120 - it stays text
        if folder in self.promised and not os.path.lexists(folder):
            os.makedirs(folder, exist_ok=True)  # noqa: PTH103

    def _keeping(self, place: str, keep: Callable[[KeptFiles, str], None]) -> None:
        """Keep what is there; end the process before it is lost."""
        if self._kept is None:
            return
        self._busy.is_keeping = True
        try:
            keep(self._kept, place)
        except Exception as error:
            why = getattr(error, "strerror", None) or repr(error)
            self._refuse(_NOT_KEPT.format(place=place, why=why))
        finally:
            self._busy.is_keeping = False

    def _connects(self, name: str) -> None:
        """Note and keep a database, which SQLite will write itself, or only read."""
        if name.startswith("file:"):
            uri = urlsplit(name)
            if parse_qs(uri.query).get("mode") in (["ro"], ["memory"]):
                return
            name = unquote(uri.path)
        if name in ("", ":memory:") or (place := self._counting(name)) is None:
            return
        if not os.path.lexists(place):
            self.writes(place)
            return
        self._keeping(place, KeptFiles.keep_database)
        if self._was_there(place):
            self._databases.setdefault(place, _changed_at(place))

    def look_at_databases(self) -> None:
        """Note the databases that were changed since the script connected to them."""
        for place, before in self._databases.items():
            with suppress(OSError):
                if _changed_at(place) != before:
                    self.writes(place, is_emptied=False)
                    self.overwritten[place] = None

    def _was_there(self, place: str) -> bool:
        """Return True if a file or folder existed before this process."""
        if not os.path.lexists(place) or place in self._created:
            return False
        if any(place.startswith(f"{folder}/") for folder in self._created):
            return False
        # What code in C makes for a while in the temporary folder is younger than the process.
        return not self._is_temporary(place) or os.lstat(place).st_ctime < self._began

    def _counting(self, path: Any) -> str | None:
        """Return the absolute path if it counts; caches and devices do not.

        Links among its folders are followed, and it itself is not.
        """
        if isinstance(path, int):
            return None
        folder, name = os.path.split(os.fsdecode(path))
        is_name = name not in ("", ".", "..")
        place = os.path.realpath(folder if is_name else os.fsdecode(path))
        place = f"{place.rstrip('/')}/{name}" if is_name else place
        if place.startswith(self._left_out) or "/__pycache__/" in place:
            return None
        return place

    def _is_temporary(self, place: str) -> bool:
        """Return True in the temporary folder; only what existed there before is named."""
        return place.startswith(self._temporary) and not place.startswith(self._start)


def _changed_at(place: str) -> float:
    """Return the last time at which a database, or what SQLite writes before it, was changed."""
    times = (file.stat().st_mtime_ns for file in database_files(place) if file.exists())
    return max(times, default=0)


def _is_folder(path: Any) -> bool:
    return not isinstance(path, int) and os.path.isdir(path)  # noqa: PTH112 - it may be bytes
