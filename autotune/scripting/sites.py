"""Where a script builds its DataLoaders: file, line, and which one of those built there."""

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
"""File and line of every call that led to a loader, the innermost first."""


class Sites:
    """Names loaders by where they were built, and knows those that take the place of another."""

    def __init__(self) -> None:
        self.names: list[str] = []
        """In the order of building."""
        self._counts: Counter[str] = Counter()
        self._of: weakref.WeakKeyDictionary[DataLoader[Any], str] = weakref.WeakKeyDictionary()
        self._built: Counter[Calls] = Counter()
        self._places: weakref.WeakKeyDictionary[DataLoader[Any], tuple[Calls, int]]
        self._places = weakref.WeakKeyDictionary()
        self._marked: set[tuple[Calls, int, int]] = set()

    def watch(self) -> None:
        """Note every loader that is built from now on."""
        original = DataLoader.__init__

        @functools.wraps(original)
        def __init__(loader: DataLoader[Any], *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(loader, *args, **kwargs)
            with suppress(Exception):  # a script's own kind of frame or loader harms nobody
                self._note(loader, sys._getframe(1))

        DataLoader.__init__ = __init__  # type: ignore[method-assign, assignment]

    def name_of(self, loader: DataLoader[Any]) -> str:
        """Such as train.py:41#0, where 0 is the first one that was built in that line."""
        return self._of.get(loader, "an unknown place")

    def mark(self, loader: DataLoader[Any]) -> None:
        """Take those that are built in the place of this one, epoch after epoch, for the same.

        Where several were built by the same calls before, as in a loop over "train" and "val",
        each of as many stands for itself.
        """
        if loader in self._places:
            calls, number = self._places[loader]
            each = self._built[calls]
            self._marked.add((calls, each, number % each))

    def is_marked(self, loader: DataLoader[Any]) -> bool:
        """Whether it was built in the place of a marked one."""
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
