"""Shows a search on a terminal as a table that is redrawn in place.

It is drawn when an event arrives and at no other time: the search waits meanwhile, so no child is
being timed, and there is no thread that could wake up while one is. Where trials run beside each
other one may be timed all the same, so that it is drawn at most once a second: what happens within
that second is seen with the next drawing, because the search waits for nothing here.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Literal, assert_never

from rich.console import Console
from rich.live import Live
from rich.text import Text

from autotune.board import Board
from autotune.progress import (
    PlainProgress,
    answer_lines,
    nothing_lines,
    plan_lines,
    remark_line,
    stage_lines,
)
from autotune.text import clean
from autotune.tuning.events import (
    Answered,
    CandidateRefused,
    CandidateSetAside,
    Event,
    LeadLost,
    LeftOut,
    NothingFeasible,
    PhaseStarted,
    Planned,
    RoundEnded,
    StagesTimed,
    StagesUnknown,
    StepStarted,
    TrialEnded,
    TrialsEnded,
    TrialStarted,
    Warned,
)
from autotune.tuning.storing.storage import is_server

Mode = Literal["auto", "rich", "plain", "none"]
Show = Callable[[Event], None]
# Between two drawings while something may be timed.
_LEAST_SECONDS = 1.0
# On fewer, the table's columns would be cut to nothing.
_FEWEST_COLUMNS = 60


@contextmanager
def display(mode: Mode) -> Iterator[Show]:
    """Shows events on stderr while the block runs.

    auto draws on a terminal and writes lines elsewhere and in CI; rich draws in CI too. Where
    nothing can be drawn, because stderr is no terminal, a dumb one or too narrow, or NO_COLOR is
    set, both write lines.
    """
    if mode == "none":
        yield lambda _: None
        return
    console = Console(stderr=True, highlight=False)
    if mode == "plain" or not _can_draw(console) or (mode == "auto" and os.environ.get("CI")):
        yield PlainProgress().show
    else:
        progress = LiveProgress(console)
        with progress.drawn():
            yield progress.show


def _can_draw(console: Console) -> bool:
    if not sys.stderr.isatty() or os.environ.get("TERM", "dumb") in {"dumb", "unknown"}:
        return False
    if os.environ.get("NO_COLOR"):
        return False  # who asks for no colours is given no other control characters either
    columns = os.get_terminal_size(sys.stderr.fileno()).columns  # 0 where it does not say
    return min(columns or console.width, console.width) >= _FEWEST_COLUMNS


def _others_may_time(board: Board) -> bool:
    """Whether trials of other devices, or of workers in whatever phase, may run now."""
    options = board.scene.options
    if options.storage is not None and is_server(options.storage):
        return True
    return board.phase == "search" and options.at_once > 1


class LiveProgress:
    """A table at the end of the terminal; what stays is printed above and below it."""

    def __init__(self, console: Console, now: Callable[[], float] = time.time) -> None:
        self._console = console
        self._now = now
        self._drawn = 0.0
        self.board: Board | None = None
        """What is known so far; None before the search is planned."""
        self._last: list[str] = []
        # Nothing but the result goes to stdout, and what others write to stderr stands above.
        self._live = Live(
            console=console, auto_refresh=False, transient=True, redirect_stdout=False
        )

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Draws while the block runs, then leaves the terminal as it was, with the whole table."""
        self._live.start()
        try:
            yield
        except BaseException:
            with suppress(OSError):  # that the terminal is gone may be why this ends
                self._leave()
            raise
        self._leave()

    def show(self, event: Event) -> None:
        """Note what happened, and draw it unless that has to wait for the next event."""
        if isinstance(event, Planned):
            self._plan(event)
        assert self.board is not None
        self.board.now = self._now()
        self._update(self.board, event)
        is_due = isinstance(event, PhaseStarted) or not self._is_soon(self.board)
        if is_due:
            self._drawn = self.board.now
        self._live.update(self.board, refresh=is_due)

    def _is_soon(self, board: Board) -> bool:
        """Whether this is too soon after the last drawing; a clock may be set back."""
        return _others_may_time(board) and 0 <= board.now - self._drawn < _LEAST_SECONDS

    def _plan(self, event: Planned) -> None:
        self.board = Board(event.scene, began=self._now())
        self._say(plan_lines(event.scene))
        if event.finished_before:
            self._say([f"continues after {event.finished_before} finished trials"])

    def _update(self, board: Board, event: Event) -> None:
        match event:
            case Planned():
                pass
            case PhaseStarted(phase, detail, eta):
                board.phase = phase
                board.begin(f"{phase}: {detail}")
                board.expect(eta)
            case StepStarted(detail, eta):
                board.begin(f"{board.phase}: {detail}")
                board.expect(eta)
            case StagesTimed() | StagesUnknown():
                self._stages(board, event)
            case TrialStarted():
                board.measuring(event)
            case TrialEnded():
                board.trials.append(event)
                board.expect(event.eta_seconds)
            case LeadLost():
                board.trials[-1] = replace(board.trials[-1], best=event.best)
                board.notes.append(remark_line(event))
            case TrialsEnded() | CandidateRefused() | CandidateSetAside() | LeftOut() | Warned():
                board.notes.append(remark_line(event))
            case RoundEnded(config):
                board.duels[config] = event
                board.expect(event.eta_seconds)
            case Answered():
                self._last = answer_lines(event)
            case NothingFeasible():
                self._last = nothing_lines(event)
            case _:
                assert_never(event)

    def _stages(self, board: Board, event: StagesTimed | StagesUnknown) -> None:
        if isinstance(event, StagesUnknown):
            self._say([f"no diagnosis, so everything is searched: {event.reason}"])
            return
        board.light = None if event.diagnosis.doubt else event.diagnosis.compute_limit
        known = board.scene.space.notes
        notes = [f"  {note}" for note in event.space.notes if note not in known]
        self._say([*stage_lines(event.diagnosis), *notes])

    def _leave(self) -> None:
        self._live.stop()
        if self.board is not None:
            self.board.whole = True
            self._console.print(self.board)
        self._say(self._last)

    def _say(self, lines: list[str]) -> None:
        for line in lines:
            self._console.print(Text(clean(line)))
