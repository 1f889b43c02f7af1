"""A search as it is drawn on a terminal, event by event."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from autotune.console.live import LiveProgress
from autotune.searching.run.events import Event
from finished_study import runner
from scripted_runner import events_of, options_in

ESCAPE = "\x1b"
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
NOON = 1_700_000_000.0


def whole_search(folder: Path) -> list[Event]:
    """A search of five batch sizes in a folder, one of which runs out of memory."""
    return events_of(options_in(folder, storage=None), runner())


def recording(width: int = 120, **kinds: object) -> Console:
    """A terminal of this width that remembers what was printed on it."""
    options = {"file": io.StringIO(), "record": True, "force_terminal": True, **kinds}
    return Console(width=width, height=40, highlight=False, **options)  # type: ignore[arg-type]


def drawn(events: list[Event], console: Console) -> str:
    """Return what stands on the terminal in the end."""
    progress = LiveProgress(console, now=lambda: NOON)
    with progress.drawn():
        for event in events:
            progress.show(event)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def frame(events: list[Event], width: int = 120, **kinds: object) -> str:
    """Return what is drawn when the last of these events arrives."""
    console = recording(width, **kinds)
    progress = LiveProgress(console, now=lambda: NOON)
    for event in events:
        progress.show(event)
    assert progress.board is not None
    plain = Console(width=width, height=40, file=io.StringIO(), **kinds)  # type: ignore[arg-type]
    plain.print(progress.board)
    assert isinstance(plain.file, io.StringIO)
    return plain.file.getvalue()


def until(events: list[Event], kind: type, number: int = 1) -> list[Event]:
    """The events up to the n-th of a kind."""
    places = [place for place, event in enumerate(events) if isinstance(event, kind)]
    return events[: places[number - 1] + 1]


def row(text: str, setting: str) -> str:
    """The line of the trial with this setting."""
    return next(line for line in text.splitlines() if setting in line and "/s" not in line)
