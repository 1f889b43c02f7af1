"""The lines of a search's events where there is no terminal, and of its answer."""

from collections.abc import Iterable

from autotune.console.answer_lines import answer_lines
from autotune.console.progress import PlainProgress
from autotune.searching.run.events import Answered, Event, NothingFeasible


def lines_of(events: Iterable[Event]) -> list[str]:
    """The lines of these events, in order."""
    lines: list[str] = []
    progress = PlainProgress(lines.append)
    for event in events:
        progress.show(event)
        if isinstance(event, Answered | NothingFeasible):
            lines += answer_lines(event)
    return lines
