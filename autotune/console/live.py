"""Show a search on a terminal as a table that is redrawn in place.

An event draws the table. The search waits meanwhile, so that no child is being timed. Parallel
trials may be timed all the same: then events draw at most once a second, and the next drawing shows
what was skipped. A thread redraws the table after every ten seconds without an event, to show that
the search still works. A trial may be timed beside that one short drawing.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Literal

from rich.console import Console
from rich.live import Live
from rich.text import Text

from autotune.console.board import Board
from autotune.console.event_lines import plan_lines, remark_line, stage_lines, waiting_line
from autotune.console.progress import PlainProgress, Waiting
from autotune.searching.run.events import (
    Answered,
    CostsMeasured,
    Event,
    IncumbentRevoked,
    NothingFeasible,
    PhaseStarted,
    Planned,
    RoundEnded,
    RoundVoid,
    StagesTimed,
    StagesUnknown,
    StepStarted,
    TrialEnded,
    TrialStarted,
)
from autotune.storage.database import is_shared
from autotune.values.text import clean

Mode = Literal["auto", "rich", "plain", "none"]
Show = Callable[[Event], None]
# Least seconds between two drawings while something may be timed.
_LEAST_SECONDS = 1.0
# Least width of a terminal for the table's columns to be readable.
_FEWEST_COLUMNS = 60


@contextmanager
def display(mode: Mode) -> Iterator[Show]:
    """Show events on stderr while the block runs.

    `auto` draws on a terminal and writes lines elsewhere and in CI; `rich` draws in CI too. Both
    write lines if stderr is no terminal, a dumb one or too narrow, or if NO_COLOR is set.

    Yields:
        A function that shows an event.
    """
    if mode == "none":
        yield lambda _: None
        return
    console = Console(stderr=True, highlight=False)
    if mode == "plain" or not _can_draw(console) or (mode == "auto" and os.environ.get("CI")):
        lines = PlainProgress()
        with _alive(lines.show, lines.wait) as show:
            yield show
    else:
        progress = LiveProgress(console)
        with progress.drawn(), _alive(progress.show, progress.wait) as show:
            yield show


@contextmanager
def _alive(show: Show, wait: Callable[[float], None]) -> Iterator[Show]:
    """Call `wait` after every ten seconds without an event."""
    waiting = Waiting(wait)

    def shown(event: Event) -> None:
        with waiting.saying():
            show(event)

    with waiting.running():
        yield shown


def _can_draw(console: Console) -> bool:
    if not sys.stderr.isatty() or os.environ.get("TERM", "dumb") in {"dumb", "unknown"}:
        return False
    if os.environ.get("NO_COLOR"):
        return False  # NO_COLOR: send no control characters at all
    columns = os.get_terminal_size(sys.stderr.fileno()).columns  # 0 where it does not say
    return min(columns or console.width, console.width) >= _FEWEST_COLUMNS


def _others_may_time(board: Board) -> bool:
    """Return True if trials of other devices or workers may run now."""
    options = board.context.options
    if is_shared(options.study.storage):
        return True
    return board.phase == "search" and options.resources.at_once > 1


class LiveProgress:
    """A table at the end of the terminal; permanent lines are printed above and below it."""

    def __init__(self, console: Console, now: Callable[[], float] = time.time) -> None:
        self._console = console
        self._now = now
        self._drawn = 0.0
        self.board: Board | None = None
        """State of the search; None before the search is planned."""
        # stdout is for the result alone; lines that others write to stderr are printed above.
        self._live = Live(
            console=console, auto_refresh=False, transient=True, redirect_stdout=False
        )

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Draw while the block runs; print the whole table at its end."""
        self._live.start()
        try:
            yield
        except BaseException:
            with suppress(OSError):  # that the terminal is gone may be why this ends
                self._leave()
            raise
        self._leave()

    def show(self, event: Event) -> None:
        """Note an event, and draw it unless the last drawing was too recent."""
        if isinstance(event, Planned):
            self._plan(event)
        assert self.board is not None
        self.board.now = self._now()
        self._update(self.board, event)
        is_due = isinstance(event, PhaseStarted) or not self._is_soon(self.board)
        if is_due:
            self._drawn = self.board.now
        self._live.update(self.board, refresh=is_due)

    def wait(self, seconds: float) -> None:
        """Redraw the table with the elapsed time; without a table, write a line."""
        if self.board is None:
            self._say([waiting_line(seconds, "")])
            return
        self.board.now = self._now()
        self._live.update(self.board, refresh=True)

    def _is_soon(self, board: Board) -> bool:
        """Return True if the last drawing was too recent; the clock may be set back."""
        return _others_may_time(board) and 0 <= board.now - self._drawn < _LEAST_SECONDS

    def _plan(self, event: Planned) -> None:
        self.board = Board(event.context, began=self._now())
        self._say(plan_lines(event.context))
        if event.finished_before:
            self._say([f"continues after {event.finished_before} finished trials"])

    def _update(self, board: Board, event: Event) -> None:
        match event:
            case Planned() | Answered() | NothingFeasible():
                pass
            case PhaseStarted(phase, detail, eta):
                board.phase = phase
                board.begin(f"{phase}: {detail}")
                board.expect(eta)
            case StepStarted(detail, eta):
                board.begin(f"{board.phase}: {detail}")
                board.expect(eta)
            case StagesTimed() | StagesUnknown() | CostsMeasured():
                self._measured(board, event)
            case TrialStarted():
                board.measuring(event)
            case TrialEnded():
                board.trials.append(event)
                board.expect(event.eta_seconds)
            case IncumbentRevoked():
                board.trials[-1] = replace(board.trials[-1], best=event.best)
                board.notes.append(remark_line(event))
            case RoundEnded() | RoundVoid():
                self._round(board, event)
            case _:
                board.notes.append(remark_line(event))

    def _round(self, board: Board, event: RoundEnded | RoundVoid) -> None:
        if isinstance(event, RoundVoid):
            board.notes.append(remark_line(event))
        else:
            board.comparisons[event.config] = event
        board.expect(event.eta_seconds)

    def _measured(self, board: Board, event: StagesTimed | StagesUnknown | CostsMeasured) -> None:
        """Print the diagnosis and the costs of a trial."""
        if isinstance(event, CostsMeasured):
            self._say([remark_line(event)])
            return
        if isinstance(event, StagesUnknown):
            self._say([f"no diagnosis, so everything is searched: {event.reason}"])
            return
        board.light = None if event.diagnosis.doubt else event.diagnosis.compute_limit
        known = board.context.space.notes
        notes = [f"  {note}" for note in event.space.notes if note not in known]
        self._say([*stage_lines(event.diagnosis), *notes])

    def _leave(self) -> None:
        self._live.stop()
        if self.board is not None:
            self.board.whole = True
            self._console.print(self.board, "")

    def _say(self, lines: list[str]) -> None:
        for line in lines:
            self._console.print(Text(clean(line)))
