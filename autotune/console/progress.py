"""Report running work in plain lines on stderr, and a sign of life after every silent ten seconds.

The result is not progress: it goes to stdout.

On a terminal `autotune.console.live` draws a table in place of a search's lines.
`autotune.console.event_lines` renders the events, `autotune.console.answer_lines` the result.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

from autotune.console.event_lines import EventLines, waiting_line
from autotune.console.tables import folded
from autotune.searching.run.events import Answered, Event, NothingFeasible
from autotune.values.text import clean

Write = Callable[[str], None]
_EVERY_SECONDS = 10.0
_MOST_NAMES = 5


@contextmanager
def kept_files(folder: Path = Path("studies")) -> Iterator[Path]:
    """Yield a directory for files that a script changes; name it at the end if it has any.

    Args:
        folder: the study's; runs that belong to none have the folder of all studies.
    """
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
    """Write a result to stdout.

    Args:
        lines: the result for people.
        data: the result for programs; if given, only it is on stdout, and the lines on stderr.
        quiet: write nothing to stderr.
    """
    if data is None:
        sys.stdout.writelines(f"{clean(line)}\n" for line in folded(lines))
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

    def show(self, event: Event) -> None:
        """Write the lines of an event."""
        for line in self._lines.of(event):
            self._write(line)
        if isinstance(event, Answered | NothingFeasible):
            self._write("")  # the answer follows, on stdout


def stopped_lines(command: str, so_far: Path | None) -> list[str]:
    """Return lines that say how to continue a stopped search."""
    lines = ["", "Stopped. Finished trials are kept. To continue:", f"  {command}"]
    if so_far is not None:
        lines.append(f"The fastest trial so far (not confirmed): {so_far}")
    return lines
