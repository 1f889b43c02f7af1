"""What a search looks like on a terminal: the phase, the trials as bars, the contest, the time.

Only drawing: `autotune.live` says when. Times of day stand beside times gone and left, because
nothing is redrawn while a child is timed and a time of day stays true.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

from rich.console import Console, ConsoleOptions, OverflowMethod, RenderResult
from rich.table import Table
from rich.text import Text

from autotune.config import TrainingConfig, render
from autotune.progress import gain_text, rate_of, verdict_text
from autotune.text import clean, size, span
from autotune.tuning.events import Phase, RoundEnded, TrialEnded, TrialStarted
from autotune.tuning.scene import Scene

# Columns of a terminal from which there is room for these.
_ROOM_FOR_RATES, _ROOM_FOR_MEMORY = 56, 72
# The same for bars, with so many cells each; the longest that there is room for.
_BARS_FROM = {120: 28, 88: 16, 80: 8}
# Names of columns: what no number stands in.
_BARS = " "
_WORDS = {_BARS, "settings", "verdict"}
# Between two columns.
_GAP = 2
# Lines around the trials: title, header, legend, status and what is left of the screen.
_OTHER_LINES = 11
_FEWEST_ROWS = 3


@dataclass
class Board:
    """What is known of a search so far, as something that rich can print."""

    scene: Scene
    light: float | None = None
    """Samples per second of computing alone, with the baseline's settings."""
    phase: Phase | None = None
    doing: str = ""
    """What is going on now."""
    began: float = 0.0
    """When the search did; this and the following times are seconds since the epoch."""
    since: float = 0.0
    """When what is going on began."""
    now: float = 0.0
    """When this is drawn."""
    until: float | None = None
    """When the answer is expected."""
    trials: list[TrialEnded] = field(default_factory=list)
    duels: dict[TrainingConfig, RoundEnded] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    whole: bool = False
    """Every trial, however many lines that takes, and nothing of what is going on."""

    def begin(self, doing: str) -> None:
        """Something else is going on from now on."""
        self.doing, self.since = doing, self.now

    def measuring(self, event: TrialStarted) -> None:
        """A trial is going on."""
        self.begin(f"trial {event.number}: {self.settings(event.config)}")

    def expect(self, seconds: float | None) -> None:
        """So long until the answer."""
        self.until = None if seconds is None else self.now + seconds

    def settings(self, config: TrainingConfig) -> str:
        """What differs from the user's own."""
        return render(config.differences(self.scene.baseline)) or "your settings"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Everything, top to bottom."""
        signs = _Signs.of(options)
        if self.phase is not None and not self.whole:
            yield self._phases(signs)
        if self.trials:
            yield self._table(options.max_width, console.height, signs)
            yield self._legend(signs)
        if self.duels:
            yield self._contest()
        yield from (_line(note) for note in self.notes)
        if not self.whole:
            yield from self._now()

    def _phases(self, signs: _Signs) -> Text:
        """The phases in order, the one that is going on in bold."""
        phases: tuple[Phase, ...] = get_args(Phase)
        reached = phases.index(self.phase) if self.phase else 0
        text = Text()
        for number, phase in enumerate(phases):
            sign = signs.done if number < reached else signs.current
            if number <= reached:
                text.append(f"{sign} {phase}  ", "green" if number < reached else "bold")
            else:
                text.append(f"{phase}  ", "dim")
        return text

    def _table(self, width: int, height: int, signs: _Signs) -> Table:
        rows = [self._cells(event, width, signs) for event in self._visible(height)]
        if not self.whole:
            _fit(rows, width, signs)
        table = Table(box=None, pad_edge=False)
        for name in rows[0]:
            # One line for each trial while the search runs, as many as it needs in the end.
            folds = self.whole and name in _WORDS
            table.add_column(
                name,
                justify="left" if name in _WORDS else "right",
                no_wrap=not folds,
                overflow="fold" if folds else signs.overflow,
            )
        for cells in rows:
            table.add_row(*cells.values())
        return table

    def _visible(self, height: int) -> list[TrialEnded]:
        """The last trials that fit on the screen."""
        if self.whole:
            return self.trials
        rows = height - _OTHER_LINES - len(self.duels) - len(self.notes)
        return self.trials[-max(_FEWEST_ROWS, rows) :]

    def _cells(self, event: TrialEnded, width: int, signs: _Signs) -> dict[str, Text]:
        """A line of the table by the names of its columns: those that there is room for."""
        trial, rate, style = event.trial, rate_of(event.trial), _style(event)
        memory, length = trial.details.get("peak_memory_bytes"), _bar_length(width)
        cells = {"": Text(str(trial.number))}
        if width >= _ROOM_FOR_RATES:
            cells["samples/s"] = Text(f"{rate:.1f}" if rate else "-")
        if length:
            cells[_BARS] = self._bar(event, length, signs)
        cells["gain"] = Text(gain_text(trial, event.baseline).strip(), style)
        if width >= _ROOM_FOR_MEMORY:
            cells["memory"] = Text(size(memory) if memory else "-")
        cells["settings"] = _line(self.settings(trial.config) if trial.number else "your settings")
        cells["verdict"] = _line(verdict_text(trial), style)
        return cells

    def _bar(self, event: TrialEnded, length: int, signs: _Signs) -> Text:
        """The rate as a bar, with a mark at the user's own and one at computing alone."""
        scale = max(filter(None, (self.light, *(rate_of(e.trial) for e in self.trials))), default=1)
        own, light = rate_of(event.baseline), self.light

        def cell(rate: float | None) -> int:
            return -1 if rate is None else min(length - 1, int(rate / scale * length))

        filled = cell(rate_of(event.trial))
        signs_at = {cell(light): signs.light, cell(own): signs.own}
        text = Text()
        for place in range(length):
            fill = signs.bar if place <= filled else " "
            text.append(signs_at.get(place, fill), "bold" if place in signs_at else _style(event))
        return text

    def _legend(self, signs: _Signs) -> Text:
        """The best so far, and what the marks in the bars are."""
        last = self.trials[-1]
        best, own = last.best, rate_of(last.baseline)
        text = Text("best so far: ")
        if best.number:
            text.append(f"trial {best.number}, {gain_text(best, last.baseline).strip()}", "bold")
            text.append(f"  {self.settings(best.config)}")
        else:
            text.append("your settings", "bold")
        text.append(f"\n{signs.own} your settings {own:.1f}/s" if own else "", "dim")
        text.append(
            f"  {signs.light} their computing alone {self.light:.1f}/s" if self.light else "", "dim"
        )
        return text

    def _contest(self) -> Table:
        """Each candidate against the baseline, in rounds of fresh processes."""
        table = Table(box=None, pad_edge=False)
        for name in ("rounds", "last", "so far"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("candidate", overflow="fold")
        for config, duel in self.duels.items():
            low, high = duel.interval
            table.add_row(
                str(len(duel.ratios)),
                f"{duel.ratios[-1]:.3f}x",
                f"{low:.3f} to {high:.3f}",
                _line(self.settings(config)),
            )
        return table

    def _now(self) -> Iterator[Text]:
        """What is going on since when, the time gone and the time left."""
        if self.doing:
            yield _line(f"since {_clock(self.since)}: {self.doing}", "bold")
        left = ""
        if self.until is not None:
            seconds = span(max(0.0, self.until - self.now))
            left = f", about {seconds} left: the answer at {_clock(self.until)}"
        yield _line(f"{span(self.now - self.began)} gone at {_clock(self.now)}{left}")


@dataclass(frozen=True, slots=True)
class _Signs:
    """What bars and marks are drawn with."""

    bar: str
    own: str
    light: str
    done: str
    current: str
    overflow: OverflowMethod
    """What becomes of a text that does not fit."""

    @classmethod
    def of(cls, options: ConsoleOptions) -> _Signs:
        """Of a terminal that may know ASCII alone."""
        if options.ascii_only:
            return cls("#", "|", ":", "+", ">", "crop")
        return cls("━", "│", "┊", "✓", "▸", "ellipsis")


def _fit(rows: Sequence[Mapping[str, Text]], width: int, signs: _Signs) -> None:
    """Cut settings and verdicts so that each line of a table fits; numbers keep their room."""
    widths = {name: max(len(name), *(row[name].cell_len for row in rows)) for name in rows[0]}
    settings, verdict = widths.pop("settings"), widths.pop("verdict")
    room = max(0, width - sum(widths.values()) - _GAP * (len(rows[0]) - 1))
    verdict = min(verdict, max(room // 3, room - settings))
    for row in rows:
        row["verdict"].truncate(verdict, overflow=signs.overflow)
        row["settings"].truncate(max(0, room - verdict), overflow=signs.overflow)


def _bar_length(width: int) -> int:
    return next((cells for room, cells in _BARS_FROM.items() if width >= room), 0)


def _style(event: TrialEnded) -> str:
    """Green for what is faster than the user's own settings, red for what cannot be used."""
    verdict, own = event.trial.verdict, event.baseline.verdict
    if not verdict.feasible:
        return "red"
    return "green" if (verdict.value or 0.0) > (own.value or 0.0) else ""


def _line(text: str, style: str = "") -> Text:
    """Foreign text as it stands, without markup or control characters."""
    return Text(clean(text), style)


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(seconds))
