"""Where a script builds its DataLoaders: file, line, and which one of those built there."""

from __future__ import annotations

import functools
import sys
import weakref
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils.data import DataLoader

_NOT_THE_SCRIPTS = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))


class Sites:
    """Names loaders by where they were built."""

    def __init__(self) -> None:
        self.names: list[str] = []
        """In the order of building."""
        self._counts: Counter[str] = Counter()
        self._of: weakref.WeakKeyDictionary[DataLoader[Any], str] = weakref.WeakKeyDictionary()

    def watch(self) -> None:
        """Note every loader that is built from now on."""
        original = DataLoader.__init__

        @functools.wraps(original)
        def __init__(loader: DataLoader[Any], *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(loader, *args, **kwargs)
            self._note(loader, sys._getframe(1))

        DataLoader.__init__ = __init__  # type: ignore[method-assign, assignment]

    def name_of(self, loader: DataLoader[Any]) -> str:
        """Such as train.py:41#0, where 0 is the first one that was built in that line."""
        return self._of.get(loader, "an unknown place")

    def _note(self, loader: DataLoader[Any], frame: FrameType | None) -> None:
        while frame is not None and frame.f_code.co_filename.startswith(_NOT_THE_SCRIPTS):
            frame = frame.f_back
        if frame is None:
            return
        line = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        self._of[loader] = f"{line}#{self._counts[line]}"
        self._counts[line] += 1
        self.names.append(self._of[loader])
