"""Name a script's DataLoaders by the place that builds them: file, line, and number there."""

from __future__ import annotations

import functools
import sys
import weakref
from collections import Counter
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils.data import DataLoader

_NOT_THE_SCRIPTS = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))

Calls = tuple[tuple[str, int], ...]
"""File and line of every call that led to a loader, innermost first."""


class Sites:
    """The places where loaders were built, and those of marked loaders."""

    def __init__(self) -> None:
        self.names: list[str] = []
        """Names of all loaders, in the order of building."""
        self._counts: Counter[str] = Counter()
        self._of: weakref.WeakKeyDictionary[DataLoader[Any], str] = weakref.WeakKeyDictionary()
        self._built: Counter[Calls] = Counter()
        self._places: weakref.WeakKeyDictionary[DataLoader[Any], tuple[Calls, int]]
        self._places = weakref.WeakKeyDictionary()
        self._marked: set[tuple[Calls, int, int]] = set()

    def watch(self) -> None:
        """Record every loader that is built from now on; patches `DataLoader` for the process."""
        original = DataLoader.__init__

        @functools.wraps(original)
        def __init__(loader: DataLoader[Any], *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(loader, *args, **kwargs)
            with suppress(Exception):  # an unknown type of frame or loader must not harm the script
                self._note(loader, sys._getframe(1))

        DataLoader.__init__ = __init__  # type: ignore[method-assign, assignment]

    def name_of(self, loader: DataLoader[Any]) -> str:
        """Return a name such as train.py:41#0, in which 0 is the first one built in that line."""
        return self._of.get(loader, "an unknown place")

    def mark(self, loader: DataLoader[Any]) -> None:
        """Mark a loader, and with it those that are built in its place later, such as each epoch.

        If the same calls have built n loaders so far, as in a loop over "train" and "val", every
        n-th further one takes its place.
        """
        if loader in self._places:
            calls, number = self._places[loader]
            each = self._built[calls]
            self._marked.add((calls, each, number % each))

    def is_marked(self, loader: DataLoader[Any]) -> bool:
        """Return True if the loader is a marked one or was built in the place of one."""
        if loader not in self._places:
            return False
        calls, number = self._places[loader]
        return any(calls == c and number % each == rest for c, each, rest in self._marked)

    def _note(self, loader: DataLoader[Any], frame: FrameType | None) -> None:
        calls = _calls(frame)
        self._places[loader] = (calls, self._built[calls])
        self._built[calls] += 1
        own = [call for call in calls if not call[0].startswith(_NOT_THE_SCRIPTS)]
        if own:
            file, number = own[0]
            line = f"{Path(file).name}:{number}"
            self._of[loader] = f"{line}#{self._counts[line]}"
            self._counts[line] += 1
            self.names.append(self._of[loader])


def _calls(frame: FrameType | None) -> Calls:
    found = []
    while frame is not None:
        found.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)
