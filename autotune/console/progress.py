"""Report running work in plain lines on stderr, and a sign of life after every silent ten seconds.

The answer is not progress: it goes to stdout.

On a terminal `autotune.console.live` draws a table in place of a search's lines.
`autotune.console.event_lines` renders the events, `autotune.console.answer_lines` the result.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from autotune.configuration.training_config import TrainingConfig, render
from autotune.console.event_lines import (
    doing,
    gain_text,
    plan_lines,
    rate_of,
    remark_line,
    round_line,
    stage_lines,
    tokens_columns,
    verdict_text,
    waiting_line,
)
from autotune.context.search_context import SearchContext
from autotune.searching.run.events import (
    Answered,
    Event,
    NothingFeasible,
    PhaseStarted,
    Planned,
    RoundEnded,
    StagesTimed,
    StagesUnknown,
    StepStarted,
    TrialEnded,
    TrialStarted,
)
from autotune.study.repair import Repaired
from autotune.values.text import about_left, clean, size, span

Write = Callable[[str], None]
_EVERY_SECONDS = 10.0
_MOST_NAMES = 5
_OWN_TRIAL = "your settings, in the search"


@contextmanager
def kept_files(folder: Path = Path("studies")) -> Iterator[Path]:
    """Yield a folder for files that runs of a script change; name it at the end if it has any.

    Args:
        folder: the study's; runs that belong to none have the folder of all studies.
    """
    place = folder / "kept" / time.strftime("%Y%m%d-%H%M%S")
    try:
        yield place
    finally:
        if place.is_dir():
            with suppress(OSError):  # the terminal may be gone
                to_stderr(_kept_line(place))


def _kept_line(place: Path) -> str:
    """Return the folder of kept files, with the first names."""
    kept = sorted(Path("/", path.relative_to(place)) for path in place.rglob("*") if path.is_file())
    names = ", ".join(os.path.relpath(path) for path in kept[:_MOST_NAMES])
    more = f" and {len(kept) - _MOST_NAMES} more" if len(kept) > _MOST_NAMES else ""
    return f"Files that runs of the script changed or deleted are kept in {place}: {names}{more}"


def to_stderr(line: str) -> None:
    """Write a line to stderr, without foreign control characters and passwords."""
    sys.stderr.write(clean(line) + "\n")
    sys.stderr.flush()


def answer(lines: Iterable[str], data: str | None = None, quiet: bool = False) -> None:
    """Write an answer to stdout.

    Args:
        lines: the answer for people.
        data: the answer for programs; if given, it is on stdout alone, and the lines on stderr.
        quiet: write nothing to stderr.
    """
    if data is None:
        sys.stdout.writelines(f"{clean(line)}\n" for line in lines)
    else:
        sys.stdout.write(f"{data}\n")
    sys.stdout.flush()
    if data is not None and not quiet:
        to_stderr("\n".join(lines))


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


@dataclass
class PlainProgress:
    """Writes each event in a line or two."""

    write: Write = to_stderr
    _context: SearchContext | None = field(default=None, init=False)
    _doing: str = field(default="", init=False)
    _timed: TrainingConfig | None = field(default=None, init=False)
    """Settings of the last round, which those that follow do not repeat."""

    def wait(self, seconds: float) -> None:
        """Say that the last step goes on, after so many seconds of silence."""
        self.write(waiting_line(seconds, self._doing))

    def show(self, event: Event) -> None:
        """Write the lines of an event."""
        self._doing = doing(event) or self._doing
        match event:
            case Planned(context, finished_before):
                self._context = context
                self._lines(plan_lines(context))
                if finished_before:
                    self.write(f"continues after {finished_before} finished trials")
            case StagesTimed() | StagesUnknown():
                self._lines(self._stages(event))
            case TrialStarted():
                pass  # reported when it ends
            case Answered() | NothingFeasible():
                self.write("")  # the answer follows, on stdout
            case PhaseStarted("diagnosis", detail, eta) | StepStarted(detail, eta):
                self.write(f"  {detail}{about_left(eta)}")
            case PhaseStarted(phase, detail):
                self.write(f"\n{phase}: {detail}")
            case TrialEnded():
                self._lines(self._trial(event))
            case RoundEnded(config, ratios, interval, disturbed=disturbed):
                line = round_line(ratios, interval, disturbed)
                whose = "" if config == self._timed else f"  {self._differences(config)}"
                self.write(line + whose)
                self._timed = config
            case _:
                self.write(remark_line(event))

    def _trial(self, event: TrialEnded) -> list[str]:
        trial, best = event.trial, event.best
        differs = self._differences(trial.config) if trial.number else _OWN_TRIAL
        value, memory = rate_of(trial), trial.details.peak_memory_bytes
        columns = [
            f"{trial.number:4d}",
            f"{value:9.1f}/s" if value else f"{'-':>11}",
            *tokens_columns(trial, event.baseline),
            gain_text(trial, event.baseline),
            f"{size(memory):>9}" if memory else f"{'-':>9}",
            differs,
        ]
        return [
            "  ".join([*columns, verdict_text(trial)]),
            f"      best so far: trial {best.number}, {gain_text(best, event.baseline).strip()}"
            f"   {span(event.elapsed_seconds)} gone{about_left(event.eta_seconds)}",
        ]

    def _stages(self, event: StagesTimed | StagesUnknown) -> list[str]:
        """Return lines on the stage that bounds training and on knobs left out."""
        if isinstance(event, StagesUnknown):
            return [f"\nno diagnosis, so everything is searched: {event.reason}"]
        assert self._context is not None
        space, known = event.space, self._context.space.notes
        notes = [f"  {note}" for note in space.notes if note not in known]
        left = [f"  {space.size} configurations are left"] if notes else []
        return [*stage_lines(event.diagnosis), *notes, *left]

    def _differences(self, config: TrainingConfig) -> str:
        assert self._context is not None
        return render(config.differences(self._context.baseline)) or "your settings"

    def _lines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)


def repair_lines(repaired: Repaired) -> list[str]:
    """Return lines on the result of a repair."""
    lines = [f"{repaired.database} was rebuilt from {repaired.trials} finished trials."]
    if repaired.backup is not None:
        lines.append(f"The old file is {repaired.backup}.")
    if repaired.set_aside:
        lines.append(f"{repaired.set_aside} unreadable lines were moved to results.jsonl.torn.")
    return lines


def stopped_lines(command: str, so_far: Path | None) -> list[str]:
    """Return lines that say how to continue a stopped search."""
    lines = ["", "Stopped. Finished trials are kept; the same command continues:", f"  {command}"]
    if so_far is not None:
        lines.append(f"The fastest trial so far, not confirmed: {so_far}")
    return lines
