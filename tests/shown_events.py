"""The lines of a search's events where there is no terminal."""

from __future__ import annotations

from collections.abc import Iterable

from autotune.console.progress import PlainProgress
from autotune.searching.run.events import Event


def lines_of(events: Iterable[Event]) -> list[str]:
    """The lines of these events, in order."""
    lines: list[str] = []
    progress = PlainProgress(lines.append)
    for event in events:
        progress.show(event)
    return lines
