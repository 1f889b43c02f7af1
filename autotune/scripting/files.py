"""Record the files that a process opens for writing, replaces or deletes, and keep what was there.

Python's audit events report them. A forked process keeps files as well, and notes none. Libraries
that write in C or Rust raise no such event: a few are wrapped for that, and an SQLite database is
kept as the script connects. Not covered are types in C, which cannot be wrapped (`pyarrow.OSFile`,
pyarrow's file systems, `cv2.VideoWriter`), folders of files (`pyarrow.dataset`), other programs,
and names relative to an open folder (`dir_fd`).

A trial trains a few steps, but a script may save at the end of a short epoch, and a checkpoint of
the user's real training may have that name. So a copy is made of whatever was written before the
search. A hard link would take no space, but the script can still write into the file that it names.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain, count
from pathlib import Path
from threading import local
from typing import Any, NoReturn
from urllib.parse import parse_qs, unquote, urlsplit

from autotune.configuration.script import Keep
from autotune.process.common.imports import AfterImport, replace

# A larger file that is changed in place, such as a memory map, is data and no result.
_MOST_BYTES_IN_PLACE = 64 << 20
_WRITING = os.O_WRONLY | os.O_RDWR
_CACHES = ("~/.cache", "~/.triton", "~/.nv", "~/.config")
_CHANGES = {"os.rename", "os.truncate", "os.mkdir", "os.rmdir", "os.remove", "shutil.rmtree"}
_EVENTS = frozenset({"open", "sqlite3.connect", *_CHANGES})
_NOT_KEPT = (
    "it would change or delete {place}, which cannot be backed up ({why}). Free some space, or use "
    "--temp-workdir"
)
# An event has -1 where a path is relative to no open folder.
_NO_FOLDER = -1
_SYSTEM = ("/dev", "/proc", "/sys")

Refuse = Callable[[str], NoReturn]


class WrittenFiles:
    """Files that this process writes from now on."""

    def __init__(self, own: Path, kept: KeptFiles | None, refuse: Refuse) -> None:
        """Listen to the end of the process.

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
        mere = (place for place in caches if not self._start.startswith(f"{place}/"))
        left_out = (*_SYSTEM, os.path.realpath(own), *mere)
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
        sys.addaudithook(self._hear)
        for saver in _SAVERS:
            AfterImport(saver.module, partial(_wrap, saver, self.writes))

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _EVENTS:
            return
        if getattr(self._busy, "is_keeping", False):  # keeping a file writes another one
            return
        with suppress(Exception):  # an error would make the script's own call fail
            match event, arguments:
                case "open", (path, _, int(flags)) if flags & _WRITING:
                    # A folder is opened for writing to hold a file without a name.
                    if isinstance(path, int) or not os.path.isdir(path):  # noqa: PTH112 - or bytes
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
            self._keeping(place, _files_below(Path(place)))
        if self._was_there(place):
            self.deleted[place] = None

    def wrote(self, path: Path) -> bool:
        """Return True if a file was written or replaced."""
        return str(path) in self.overwritten or str(path) in self._created

    def writes(self, path: Any, is_replaced: bool = False, is_emptied: bool = True) -> None:
        """Note that a file is about to be replaced, rewritten (emptied) or changed in place."""
        place = self._counting(path)
        if place is None:
            return
        self._keep_promise(place)
        if is_replaced:
            self._keeping(place, _files_below(Path(place)))
        else:  # of a link, what it names
            most_bytes = None if is_emptied else _MOST_BYTES_IN_PLACE
            self._keeping(place, map(Path.resolve, [Path(place)]), most_bytes)
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

    def _keeping(self, place: str, paths: Iterable[Path], most_bytes: int | None = None) -> None:
        """Keep what is there; end the process before it is lost."""
        if self._kept is None:
            return
        self._busy.is_keeping = True
        try:
            for path in paths:
                self._kept.keep(path, most_bytes)
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
        # The copy is of two moments if another program writes meanwhile. It is made once: closing a
        # database that this process has open elsewhere would drop SQLite's locks.
        self._keeping(place, _database_files(place), _MOST_BYTES_IN_PLACE)
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

        Links among its folders are followed, but not the path itself.
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
    times = (file.stat().st_mtime_ns for file in _database_files(place) if file.exists())
    return max(times, default=0)


class KeptFiles:
    """A folder of kept files, each below its own path; `NAME~2` is another one of that name."""

    def __init__(self, keep: Keep) -> None:
        self._folder, self._since = Path(keep.folder), keep.since

    @property
    def folder(self) -> str:
        """The folder, or empty text if there is none yet, as nothing had to be kept."""
        return str(self._folder) if self._folder.is_dir() else ""

    def keep(self, path: Path, most_bytes: int | None = None) -> None:
        """Copy a file or link, unless a run of the script wrote it or it is kept already.

        Larger files than `most_bytes` are not kept.

        Raises:
            OSError: it cannot be kept.
        """
        with suppress(FileNotFoundError):  # another process of the script was faster
            found = path.lstat()
            is_kind = stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)
            # Renaming a file or changing its mode leaves the time at which it was written.
            is_of_runs = min(found.st_mtime, found.st_ctime) > self._since
            is_large = most_bytes is not None and found.st_size > most_bytes
            if is_kind and not is_of_runs and not is_large and (kept := self._free(path, found)):
                # Under another name first, so that the file is there whole or not at all.
                beside = kept.with_name(f".{secrets.token_hex(8)}")
                try:
                    shutil.copyfile(path, beside, follow_symlinks=False)
                    with suppress(OSError):
                        shutil.copymode(path, beside, follow_symlinks=False)
                    times = (found.st_atime_ns, found.st_mtime_ns)
                    os.utime(beside, ns=times, follow_symlinks=False)
                    _publish(beside, kept)
                finally:
                    beside.unlink(missing_ok=True)

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
            if (there.st_size, there.st_mtime_ns) == (found.st_size, found.st_mtime_ns):
                return None
        raise AssertionError


def _database_files(place: str) -> Iterator[Path]:
    """Yield the files of an SQLite database: itself, its write-ahead log and its journal."""
    file = Path(place).resolve()
    yield from (file, Path(f"{file}-wal"), Path(f"{file}-journal"))


def _files_below(path: Path) -> Iterator[Path]:
    if not path.is_dir() or path.is_symlink():
        yield path
        return
    with suppress(FileNotFoundError):
        for inner in path.iterdir():
            yield from _files_below(inner)


def _publish(beside: Path, kept: Path) -> None:
    """Give a whole copy its name; another process's copy stays, since it may be the earlier one."""
    try:
        os.link(beside, kept, follow_symlinks=False)
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        beside.replace(kept)


@dataclass(frozen=True, slots=True)
class _Saver:
    """A function that writes the file that an argument names."""

    module: str
    name: str
    """The function in its module; a method counts `self` among its arguments."""
    position: int
    argument: str
    has_mode: bool = False
    """True if the next argument, `mode`, is "r" by default and "w" to empty the file."""


_SAVERS = (
    _Saver("torch", "save", 1, "f"),
    _Saver("torch", "jit.RecursiveScriptModule.save", 1, "f"),  # torch.jit.save calls it
    _Saver("torch.export", "save", 1, "f"),
    # The function that save_file calls, which others have imported by name before.
    _Saver("safetensors.torch", "serialize_file", 1, "filename"),
    _Saver("safetensors.numpy", "serialize_file", 1, "filename"),
    _Saver("h5py", "File.__init__", 1, "name", has_mode=True),
    _Saver("cv2", "imwrite", 0, "filename"),
    _Saver("pyarrow", "output_stream", 0, "source"),
    _Saver("pyarrow.csv", "write_csv", 1, "output_file"),
    _Saver("pyarrow.feather", "write_feather", 1, "dest"),
    _Saver("pyarrow.ipc", "RecordBatchFileWriter.__init__", 1, "sink"),
    _Saver("pyarrow.ipc", "RecordBatchStreamWriter.__init__", 1, "sink"),
    _Saver("pyarrow.parquet", "ParquetWriter.__init__", 1, "where"),
)


def _wrap(saver: _Saver, writes: Callable[..., None]) -> None:
    *owners, name = saver.name.split(".")
    names = (*range(saver.position), saver.argument, "mode")

    def save(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with suppress(Exception):  # it may be no path
            given = dict(zip(names, args, strict=False)) | kwargs
            mode = given.get("mode", "r") if saver.has_mode else "w"
            if mode != "r":
                writes(given[saver.argument], is_emptied=mode == "w")
        return original(*args, **kwargs)

    with suppress(AttributeError, TypeError):  # another version, or another module of that name
        replace(reduce(getattr, owners, sys.modules[saver.module]), name, save)
