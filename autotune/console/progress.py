"""Results on stdout, and running work on stderr: in lines, or a state that is redrawn.

After every ten silent seconds, a line or a new drawing shows that the
work goes on. On a terminal, a search's lines are followed by its state: the fastest trials, the
current step and the time. Each event draws it while the search waits, so that no child is being
timed. With parallel trials one may be: then events draw at most once a second. Clock times stand
beside elapsed and remaining time, because they stay true while nothing is redrawn.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from operator import itemgetter
from pathlib import Path
from textwrap import TextWrapper, fill
from typing import Literal, get_args

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from autotune.console.lines import EventLines, gain_text, waiting_line
from autotune.searching.run import events
from autotune.study.storage import is_server
from autotune.values.text import clean, size, span

Write = Callable[[str], None]
_EVERY_SECONDS = 10.0
_MOST_NAMES = 5
_WIDTH_OF_A_PIPE = 100_000
# As wide as the names of facts, see `autotune.configuration.best_config.fact_lines`.
_INDENT_OF_FACTS = 14 * " "
# Facts with a command, which is copied as one line.
_UNFOLDED = ("  use it ", "  next ")


@contextmanager
def kept_files(folder: Path = Path("studies")) -> Iterator[Path]:
    """Yield a directory, in a study's, for files that a script changes; name it if it has any."""
    place = folder / "kept" / time.strftime("%Y%m%d-%H%M%S")
    try:
        yield place
    finally:
        kept = sorted(
            Path("/", one.relative_to(place)) for one in place.rglob("*") if one.is_file()
        )
        names = ", ".join(os.path.relpath(path) for path in kept[:_MOST_NAMES])
        more = f" and {len(kept) - _MOST_NAMES} more" if len(kept) > _MOST_NAMES else ""
        said = f"Files that the script changed or deleted are backed up in {place}: {names}{more}"
        if place.is_dir():
            with suppress(OSError):  # the terminal may be gone
                to_stderr(said)


def to_stderr(line: str) -> None:
    """Write a line to stderr, without foreign control characters and passwords."""
    sys.stderr.write(clean(line) + "\n")
    sys.stderr.flush()


def answer(lines: Iterable[str], data: str | None = None, quiet: bool = False) -> None:
    """Write a result to stdout: lines, or data for programs, with lines on stderr unless quiet."""
    if data is None:
        sys.stdout.writelines(f"{clean(line)}\n" for line in _folded(lines))
    else:
        sys.stdout.write(f"{data}\n")
    sys.stdout.flush()
    if data is not None and not quiet:
        to_stderr("\n".join(lines))


def print_rows(
    rows: Iterable[Sequence[str]], headers: Sequence[str] = (), numbers: int = 0
) -> None:
    """Print rows of foreign text on stdout: no markup, no control characters.

    The first `numbers` columns hold numbers, which are never folded.
    """
    table = Table(box=None, pad_edge=False, show_header=bool(headers))
    for place, header in enumerate(headers):
        if place < numbers:
            table.add_column(header, justify="right", no_wrap=True)
        else:
            table.add_column(header, overflow="fold")
    for row in rows:
        table.add_row(*(Text(clean(cell)) for cell in row))
    console = Console(file=sys.stdout, highlight=False, width=_width_of_stdout())
    with console.capture() as printed:
        console.print(table)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in printed.get().splitlines())


def _folded(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines folded to the terminal's width; the rest of a fact stands below its text."""
    width = _width_of_stdout()
    for line in lines:
        if len(line) > width and "\n" not in line and not line.startswith(_UNFOLDED):
            indent = _INDENT_OF_FACTS if line.startswith("  ") else ""
            wrapper = TextWrapper(
                width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
            )
            line = wrapper.fill(line)  # noqa: PLW2901
        yield line


def _width_of_stdout() -> int:
    """Return the columns of the terminal; a pipe has so many that nothing is folded."""
    return Console(file=sys.stdout).width if sys.stdout.isatty() else _WIDTH_OF_A_PIPE


class Waiting:
    """Calls a function in another thread after every `every` seconds without output."""

    def __init__(self, say: Callable[[float], None], every: float = _EVERY_SECONDS) -> None:
        """Prepare to call `say` with the seconds since the last output."""
        self._say = say
        self._every = every
        self._lock = threading.Lock()
        self._since = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @contextmanager
    def saying(self) -> Iterator[None]:
        """Hold `say` back while the block writes output itself."""
        with self._lock:
            try:
                yield
            finally:
                self._since = time.monotonic()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Call `say` while the block runs."""
        self._thread.start()
        try:
            yield
        finally:
            self._ended.set()
            self._thread.join()

    def _run(self) -> None:
        due = self._every
        while not self._ended.wait(due):
            with self._lock:
                silent = time.monotonic() - self._since
                due = self._every - silent % self._every
                if silent >= self._every and not self._ended.is_set():
                    with suppress(OSError):  # the terminal is gone
                        self._say(silent)


@contextmanager
def signs_of_life(what: str) -> Iterator[Write]:
    """Say after every ten silent seconds that `what` still goes on, while the block runs.

    Yields:
        A function that writes any other line to stderr.
    """
    waiting = Waiting(lambda seconds: to_stderr(waiting_line(seconds, what)))

    def write(line: str) -> None:
        with waiting.saying():
            to_stderr(line)

    with waiting.running():
        yield write


class PlainProgress:
    """Writes each event in a line or two."""

    def __init__(self, write: Write = to_stderr) -> None:
        """Prepare to write each line by `write`."""
        self._write = write
        self._lines = EventLines()

    def drawn(self) -> AbstractContextManager[None]:
        """Return a block in which events are shown: lines need none."""
        return nullcontext()

    def wait(self, seconds: float) -> None:
        """Say that the last step goes on, after so many seconds of silence."""
        self._write(waiting_line(seconds, self._lines.doing))

    def show(self, event: events.Event) -> None:
        """Write the lines of an event."""
        for line in self._lines.of(event):
            self._write(line)
        if isinstance(event, events.Answered | events.NothingFeasible):
            self._write("")  # the answer follows, on stdout


Mode = Literal["auto", "rich", "plain", "none"]
Show = Callable[[events.Event], None]
# Least seconds between two drawings while something may be timed.
_LEAST_SECONDS = 1.0
# Least width of a terminal to draw on.
_FEWEST_COLUMNS = 60
# Indent of a trial's settings, where they go on in the next line.
_INDENT = 38 * " "
# Number of the fastest trials that are shown.
_MOST_TRIALS = 5
_Estimate = events.PhaseStarted | events.TrialEnded | events.RoundEnded | events.RoundVoid
"""An event with an estimate of the seconds until the result."""


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
    drawn = {"rich"} if os.environ.get("CI") else {"rich", "auto"}
    progress: LiveProgress | PlainProgress = PlainProgress()
    if mode in drawn and _can_draw(console):
        progress = LiveProgress(console)
    waiting = Waiting(progress.wait)

    def show(event: events.Event) -> None:
        with waiting.saying():
            progress.show(event)

    with progress.drawn(), waiting.running():
        yield show


def _can_draw(console: Console) -> bool:
    """Return True if stderr may get control characters, and has room for a table."""
    if not sys.stderr.isatty() or console.is_dumb_terminal or console.no_color:
        return False
    columns = os.get_terminal_size(sys.stderr.fileno()).columns  # 0 where it does not say
    return min(columns or console.width, console.width) >= _FEWEST_COLUMNS


class LiveProgress:
    """Permanent lines, and below them the state of the search. Times are seconds of `now`."""

    def __init__(self, console: Console, now: Callable[[], float] = time.time) -> None:
        """Prepare to draw on `console`."""
        self._console, self._now = console, now
        self._lines = EventLines()
        self._new: list[Text] = []
        """Lines that are still to be printed."""
        self._trials: list[events.TrialEnded] = []
        self._light: float | None = None
        """Samples per second of computing by itself, with the user's settings."""
        self._phase: events.Phase | None = None
        self._began = self._since = self._drawn = now()
        """Start of the search, of the current step, and time of the last drawing."""
        self._until: float | None = None
        """Expected time of the result; None if unknown."""
        # stdout is only for the result; lines that others write to stderr are printed above.
        self._live = Live(
            console=console, auto_refresh=False, transient=True, redirect_stdout=False
        )

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Draw while the block runs; leave the lines and the fastest trials at its end."""
        self._live.start()
        try:
            yield
        except BaseException:
            with suppress(OSError):  # the block may end because the terminal is gone
                self._leave()
            raise
        self._leave()

    def show(self, event: events.Event) -> None:
        """Note an event, and draw it unless the last drawing was too recent."""
        lines = list(self._lines.of(event))
        if isinstance(event, events.TrialEnded):  # its second line is the state, which is drawn
            width = self._console.width
            lines = [fill(lines[0], width, subsequent_indent=_INDENT, break_on_hyphens=False)]
        self._new += [Text(clean(line), _style(event)) for line in lines]
        self._note(event)
        if isinstance(event, events.PhaseStarted) or not self._is_soon():
            self._draw()

    def wait(self, seconds: float) -> None:
        """Redraw with the elapsed time; before the search is planned, write a line."""
        if self._lines.context is None:
            self._new.append(Text(waiting_line(seconds, "")))
        self._draw()

    def state(self) -> RenderableType:
        """Return the fastest trials, the current step, and the elapsed and remaining time."""
        if self._phase is None:
            return Text("")
        now, phases = self._now(), get_args(events.Phase)
        doing = self._lines.doing
        left, total = "", None
        if self._until is not None:
            seconds, total = max(0.0, self._until - now), max(now, self._until) - self._began
            left = f", about {span(seconds)} left (result at {_clock(self._until)})"
        place = f"{self._phase} ({phases.index(self._phase) + 1} of {len(phases)})"
        elapsed, bar = now - self._began, Table.grid(padding=(0, 1), expand=True)
        bar.add_row(
            Text(place, style="bold"),
            ProgressBar(total, elapsed),
            f"{100 * elapsed / total:.0f}%" if total else "",
        )
        return Group(
            *([self._fastest(one_line=True)] if self._trials else []),
            Text(clean(f"since {_clock(self._since)}: {doing}")),
            Text(f"{span(elapsed)} elapsed at {_clock(now)}{left}"),
            bar,
        )

    def _fastest(self, *, one_line: bool) -> Table:
        """Return the fastest trials and the user's settings; `one_line` cuts long settings."""
        last, context = self._trials[-1], self._lines.context
        assert context is not None
        values = [
            (value, each.trial)
            for each in self._trials
            if (value := each.trial.verdict.value) is not None and each.trial.verdict.feasible
        ]
        ranked = [trial for _, trial in sorted(values, key=itemgetter(0), reverse=True)]
        own = [trial for trial in ranked[_MOST_TRIALS:] if trial.number == 0]
        shown = [*ranked[:_MOST_TRIALS], *own]
        rates = [trial.details.samples_per_second or 0.0 for trial in shown]
        scale = max(self._light or 0.0, *rates)
        table = Table(box=None, pad_edge=False)
        for name in ("trial", context.rate_unit, "", "speed-up", "memory"):
            table.add_column(name, justify="left" if not name else "right", no_wrap=True)
        table.add_column("settings")

        def bar(rate: float) -> ProgressBar:
            return ProgressBar(scale, rate, self._console.width // 8, finished_style="bar.complete")

        def cell(text: str) -> Text:
            return Text(clean(text), no_wrap=one_line, overflow="ellipsis" if one_line else "fold")

        for trial, rate in zip(shown, rates, strict=True):
            memory = trial.details.peak_memory_bytes
            table.add_row(
                str(trial.number),
                f"{rate:.1f}",
                bar(rate),
                gain_text(trial, last.baseline).strip(),
                size(memory) if memory else "-",
                cell(self._lines.differences(trial.config)),
            )
        if self._light:
            cells = ("", f"{self._light:.1f}", bar(self._light), "", "", "computing by itself")
            table.add_row(*cells, style="dim")
        return table

    def _note(self, event: events.Event) -> None:
        """Note what an event changes in the state."""
        match event:
            case events.Planned():
                self._began = self._now()
            case events.PhaseStarted(phase):
                self._phase = phase
            case events.StagesTimed(diagnosis):
                self._light = None if diagnosis.doubt else diagnosis.compute_limit
            case events.TrialEnded():
                self._trials.append(event)
        if isinstance(event, events.PhaseStarted | events.StepStarted | events.TrialStarted):
            self._since = self._now()
        if isinstance(event, _Estimate):
            seconds = event.eta_seconds
            self._until = None if seconds is None else self._now() + seconds

    def _is_soon(self) -> bool:
        """Return True if others may be timed now and the last drawing was too recent."""
        context = self._lines.context
        if context is None:
            return False
        options = context.options
        others = is_server(options.study.storage) or (
            self._phase == "search" and options.resources.at_once > 1
        )
        # the clock may be set back
        return others and 0 <= self._now() - self._drawn < _LEAST_SECONDS

    def _draw(self) -> None:
        """Print the new lines, and draw the state below them."""
        self._drawn = self._now()
        new, self._new = self._new, []
        with self._console:  # one write for both
            if new:
                self._console.print(*new, sep="\n")
            self._live.update(self.state(), refresh=True)

    def _leave(self) -> None:
        """Erase the state; print lines that were not drawn yet, and the fastest trials."""
        self._live.stop()
        if self._lines.context is not None:
            fastest = [self._fastest(one_line=False)] if self._trials else []
            self._console.print(*self._new, *fastest, "", sep="\n")


def _style(event: events.Event) -> str:
    """Return green for a trial faster than the user's settings, red for an infeasible one."""
    match event:
        case events.TrialEnded(trial, baseline) if trial.verdict.feasible:
            return "green" if (trial.verdict.value or 0) > (baseline.verdict.value or 0) else ""
        case events.TrialEnded():
            return "red"
        case events.PhaseStarted():
            return "bold"
        case events.Warned():
            return "yellow"
    return ""


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(seconds))
