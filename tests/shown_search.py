"""A search as a person sees it: drawn on a terminal, or in lines."""

import io
import re
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from autotune.console.lines import answer_lines
from autotune.console.progress import LiveProgress, PlainProgress
from autotune.searching.run.events import Answered, Event, NothingFeasible
from finished_study import runner
from scripted_runner import events_of, options_in

ESCAPE = "\x1b"
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
NOON = 1_700_000_000.0


def whole_search(folder: Path) -> list[Event]:
    """A search of five batch sizes in a folder, one of which runs out of memory."""
    return events_of(options_in(folder, storage=None), runner())


def recording(width: int = 120, file: io.StringIO | None = None) -> Console:
    """A terminal of this width that remembers what was printed on it."""
    kept = file or io.StringIO()
    return Console(width=width, height=40, highlight=False, file=kept, force_terminal=True)


def drawn(events: list[Event], console: Console) -> str:
    """Return all that reaches the terminal, without escape sequences."""
    progress = LiveProgress(console, now=lambda: NOON)
    with progress.drawn():
        for event in events:
            progress.show(event)
    assert isinstance(console.file, io.StringIO)
    return plain(console.file.getvalue())


def plain(text: str) -> str:
    """Return a text without escape sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def frame(events: list[Event], width: int = 120) -> str:
    """Return what is drawn below the lines when the last of these events arrives."""
    progress = LiveProgress(recording(width), now=lambda: NOON)
    for event in events:
        progress.show(event)
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(progress.state())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def until(events: list[Event], kind: type, number: int = 1) -> list[Event]:
    """The events up to the n-th of a kind."""
    places = [place for place, event in enumerate(events) if isinstance(event, kind)]
    return events[: places[number - 1] + 1]


def lines_of(events: Iterable[Event]) -> list[str]:
    """The lines of these events, in order."""
    lines: list[str] = []
    progress = PlainProgress(lines.append)
    for event in events:
        progress.show(event)
        if isinstance(event, Answered | NothingFeasible):
            lines += answer_lines(event)
    return lines
