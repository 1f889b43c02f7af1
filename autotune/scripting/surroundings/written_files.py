"""Record the files that a process opens for writing, replaces or deletes, by Python's audit events.

Libraries that write in C or Rust raise no such event; `torch.save` is wrapped for that.
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from autotune.scripting.program import AfterImport

_WRITING = os.O_WRONLY | os.O_RDWR
_CACHES = ("~/.cache", "~/.triton", "~/.nv", "~/.config")
_EVENTS = frozenset({"open", "os.rename", "os.mkdir", "os.remove", "shutil.rmtree"})
_SYSTEM = ("/dev", "/proc", "/sys")


class WrittenFiles:
    """Files that this process wrote, from the call of `watch` on."""

    def __init__(self, own: Path) -> None:
        """Prepare; `own` is the trial's folder, in which files do not count."""
        self._process = os.getpid()
        self._start = f"{Path.cwd()}/"
        # Asked for now: within an event, its own lock may be held.
        self._temporary = f"{tempfile.gettempdir()}/"
        caches = {os.environ.get("TORCHINDUCTOR_CACHE_DIR"), os.environ.get("HF_HOME")} - {None}
        left_out = (str(own), *_SYSTEM, *map(os.path.expanduser, _CACHES), *map(str, caches))
        self._left_out = tuple(f"{path}/" for path in left_out)
        self._created: set[str] = set()
        self.folders: dict[str, None] = {}
        """Folders in which a file was written or made, in order."""
        self.overwritten: dict[str, None] = {}
        """Files that existed before and were written to or replaced."""
        self.deleted: dict[str, None] = {}
        """Files and folders that existed before and were deleted."""

    def watch(self) -> None:
        """Listen from now on, to the end of the process."""
        sys.addaudithook(self._hear)
        AfterImport("torch", self._watch_saves)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _EVENTS or os.getpid() != self._process:
            return
        with suppress(Exception):  # an error would make the script's own call fail
            match event, arguments:
                # A folder is opened for writing to hold a file without a name.
                case "open", (path, _, int(flags)) if flags & _WRITING and not _is_folder(path):
                    self.writes(path)
                case "os.rename", (_, target, *_):
                    self.writes(target)
                case "os.mkdir", (path, *_):
                    self._made(path)
                case "os.remove" | "shutil.rmtree", (path, *_):
                    self._deletes(path)

    def _made(self, path: Any) -> None:
        if (place := self._counting(path)) and not os.path.lexists(place):
            self._created.add(place)
            self.folders[place] = None

    def _deletes(self, path: Any) -> None:
        place = self._counting(path)
        if place and os.path.lexists(place) and not self._is_new(place):
            self.deleted[place] = None

    def writes(self, path: Any) -> None:
        """Note that a file is about to be written."""
        place = self._counting(path)
        if place is None:
            return
        self.folders[os.path.dirname(place)] = None  # noqa: PTH120 - it stays text
        if not os.path.lexists(place):
            self._created.add(place)
        elif not self._is_new(place):
            self.overwritten[place] = None

    def _is_new(self, place: str) -> bool:
        return place in self._created or any(place.startswith(f"{p}/") for p in self._created)

    def _counting(self, path: Any) -> str | None:
        """Return the absolute path if it counts; caches, devices and temporary files do not."""
        if isinstance(path, int):
            return None
        place = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - without following links
        if place.startswith(self._left_out) or "/__pycache__/" in place:
            return None
        is_temporary = place.startswith(self._temporary) and not place.startswith(self._start)
        return None if is_temporary else place

    def _watch_saves(self) -> None:
        import torch

        original = torch.save

        @functools.wraps(original)
        def save(obj: object, f: Any, *args: Any, **kwargs: Any) -> Any:
            with suppress(Exception):  # f may be no path
                self.writes(f)
            return original(obj, f, *args, **kwargs)

        torch.save = save


def _is_folder(path: Any) -> bool:
    return not isinstance(path, int) and os.path.isdir(path)  # noqa: PTH112 - it may be bytes
