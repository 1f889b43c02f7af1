"""A clock that a test moves, in the place of the one that a search reads."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

_FOLDERS = ("autotune.context.", "autotune.searching.")


@dataclass(frozen=True)
class _Clock:
    """The functions of the module `time` that a search uses."""

    monotonic: Callable[[], float]

    def sleep(self, seconds: float) -> None:
        """Go on at once."""


def use_clock(monkeypatch: pytest.MonkeyPatch, now: Callable[[], float]) -> None:
    """Let a search read its seconds from `now` and never sleep, wherever it looks at a clock."""
    readers = [
        module
        for name, module in sys.modules.items()
        if name.startswith(_FOLDERS) and _is_clock(getattr(module, "time", None))
    ]
    assert readers, "nothing of a search was imported"
    for module in readers:
        monkeypatch.setattr(module, "time", _Clock(now))


def _is_clock(found: object) -> bool:
    return found is time or isinstance(found, _Clock)
