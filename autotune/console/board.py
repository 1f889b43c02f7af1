"""Draw a search on a terminal: phases, trials as bars, confirmation rounds, time.

`autotune.console.live` decides when to draw. Clock times stand beside elapsed and remaining time,
because nothing is redrawn while a child is timed and a clock time stays true.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

from rich.console import Console, ConsoleOptions, OverflowMethod, RenderResult
from rich.table import Table
from rich.text import Text

from autotune.configuration.training_config import TrainingConfig, render
from autotune.console.event_lines import gain_text, rate_of, verdict_text
from autotune.context.search_context import SearchContext
from autotune.searching.run.events import Phase, RoundEnded, TrialEnded, TrialStarted
from autotune.values.text import clean, size, span

# Least terminal width, in columns, at which rates, memory and tokens are shown.
_ROOM_FOR_RATES, _ROOM_FOR_MEMORY, _ROOM_FOR_TOKENS = 56, 72, 88
# Least terminal width to the length of the bars, widest first.
_BARS_FROM = {120: 28, 88: 16, 80: 8}
_BARS = " "
# Columns without numbers: left-aligned, and folded in the final table.
_WORDS = {_BARS, "settings", "verdict"}
# Spaces between two columns.
_GAP = 2
# Lines that the trials leave free: title, header, legend, a reason, status and a margin.
_OTHER_LINES = 13
_FEWEST_ROWS = 3


@dataclass
class Board:
    """State of a running search, as a rich renderable. Times are seconds since the epoch."""

    context: SearchContext
    light: float | None = None
    """Samples per second of the computation alone, under the baseline's settings."""
    phase: Phase | None = None
    doing: str = ""
    """The current step, in words."""
    began: float = 0.0
    """Start of the search."""
    since: float = 0.0
    """Start of the current step."""
    now: float = 0.0
    """Time of this drawing."""
    until: float | None = None
    """Expected time of the result; None if unknown."""
    trials: list[TrialEnded] = field(default_factory=list)
    comparisons: dict[TrainingConfig, RoundEnded] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    whole: bool = False
    """Show all trials, however many lines they take, and no current step."""

    def begin(self, doing: str) -> None:
        """Note that another step begins now."""
        self.doing, self.since = doing, self.now

    def measuring(self, event: TrialStarted) -> None:
        """Note that a trial begins now."""
        self.begin(f"trial {event.number}: {self.settings(event.config)}")

    def expect(self, seconds: float | None) -> None:
        """Note the estimated seconds until the result."""
        self.until = None if seconds is None else self.now + seconds

    def settings(self, config: TrainingConfig) -> str:
        """Return the settings that differ from the user's, as text."""
        return render(config.differences(self.context.baseline)) or "your settings"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield everything to draw, top to bottom."""
        signs = _Signs.of(options)
        if self.phase is not None and not self.whole:
            yield self._phases(signs)
        if self.trials:
            yield self._table(options.max_width, console.height, signs)
            yield self._legend(signs)
            yield from self._last_reason()
        if self.comparisons:
            yield self._rounds_table()
        yield from (_line(note) for note in self.notes)
        if not self.whole:
            yield from self._now()

    def _phases(self, signs: _Signs) -> Text:
        """Return the phases in order, the current one in bold."""
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
            # One line a trial while the search runs; the final table folds long texts.
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
        """Return the last trials that fit on the screen."""
        if self.whole:
            return self.trials
        rows = height - _OTHER_LINES - len(self.comparisons) - len(self.notes)
        return self.trials[-max(_FEWEST_ROWS, rows) :]

    def _cells(self, event: TrialEnded, width: int, signs: _Signs) -> dict[str, Text]:
        """Return the cells of one row by column name, for the columns that fit in `width`."""
        trial, rate, style = event.trial, rate_of(event.trial), _style(event)
        memory, length = trial.details.peak_memory_bytes, _bar_length(width)
        cells = {"": Text(str(trial.number))}
        if width >= _ROOM_FOR_RATES:
            cells[self.context.rate_unit] = Text(f"{rate:.1f}" if rate else "-")
        if width >= _ROOM_FOR_TOKENS and event.baseline.details.tokens_per_second is not None:
            tokens = trial.details.tokens_per_second
            cells["tokens/s"] = Text(f"{tokens:.0f}" if tokens else "-")
        if length:
            cells[_BARS] = self._bar(event, length, signs)
        cells["gain"] = Text(gain_text(trial, event.baseline).strip(), style)
        if width >= _ROOM_FOR_MEMORY:
            cells["memory"] = Text(size(memory) if memory else "-")
        cells["settings"] = _line(self.settings(trial.config) if trial.number else "your settings")
        cells["verdict"] = _line(verdict_text(trial), style)
        return cells

    def _bar(self, event: TrialEnded, length: int, signs: _Signs) -> Text:
        """Return the rate as a bar, marked at the user's rate and at the computation's alone."""
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
        """Return the best trial so far and the legend of the marks in the bars."""
        last = self.trials[-1]
        best, own = last.best, rate_of(last.baseline)
        text = Text("best so far: ")
        if best.number:
            text.append(f"trial {best.number}, {gain_text(best, last.baseline).strip()}", "bold")
            text.append(f"  {self.settings(best.config)}")
        else:
            text.append("your settings", "bold")
        text.append(f"\n{signs.own} your settings in the search {own:.1f}/s" if own else "", "dim")
        text.append(
            f"  {signs.light} computing alone, your settings {self.light:.1f}/s"
            if self.light
            else "",
            "dim",
        )
        return text

    def _last_reason(self) -> Iterator[Text]:
        """Yield the whole reason if the last trial is infeasible: a row may have cut it."""
        trial = self.trials[-1].trial
        if not self.whole and not trial.verdict.feasible:
            yield _line(f"trial {trial.number}: {verdict_text(trial)}", "red")

    def _rounds_table(self) -> Table:
        """Return the table of confirmation rounds, one row for each candidate."""
        table = Table(box=None, pad_edge=False)
        for name in ("rounds", "last", "so far"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("candidate", overflow="fold")
        for config, comparison in self.comparisons.items():
            low, high = comparison.interval
            table.add_row(
                str(len(comparison.ratios)),
                f"{comparison.ratios[-1]:.3f}x",
                f"{low:.3f} to {high:.3f}"
                + (f", {comparison.disturbed} disturbed" if comparison.disturbed else ""),
                _line(self.settings(config)),
            )
        return table

    def _now(self) -> Iterator[Text]:
        """Yield the current step with its start, the elapsed and the remaining time."""
        if self.doing:
            yield _line(f"since {_clock(self.since)}: {self.doing}", "bold")
        left = ""
        if self.until is not None:
            seconds = span(max(0.0, self.until - self.now))
            left = f", about {seconds} left: the answer at {_clock(self.until)}"
        yield _line(f"{span(self.now - self.began)} gone at {_clock(self.now)}{left}")


@dataclass(frozen=True, slots=True)
class _Signs:
    """Characters that bars and marks are drawn with."""

    bar: str
    own: str
    light: str
    done: str
    current: str
    overflow: OverflowMethod
    """Treatment of a text that does not fit."""

    @classmethod
    def of(cls, options: ConsoleOptions) -> _Signs:
        """Return the characters for a terminal, in ASCII where it knows nothing else."""
        if options.ascii_only:
            return cls("#", "|", ":", "+", ">", "crop")
        return cls("━", "│", "┊", "✓", "▸", "ellipsis")


def _fit(rows: Sequence[Mapping[str, Text]], width: int, signs: _Signs) -> None:
    """Truncate settings and verdicts so that each row fits; numbers stay whole."""
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
    """Return green for a trial faster than the user's settings, red for an infeasible one."""
    verdict, own = event.trial.verdict, event.baseline.verdict
    if not verdict.feasible:
        return "red"
    return "green" if (verdict.value or 0.0) > (own.value or 0.0) else ""


def _line(text: str, style: str = "") -> Text:
    """Return foreign text literally: no markup, no control characters."""
    return Text(clean(text), style)


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(seconds))
