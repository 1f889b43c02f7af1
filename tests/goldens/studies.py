"""Studies that are kept in `studies/`: a finished one and a killed one.

Each is resumed by replay, and reported with the real command.
"""

import contextlib
import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from autotune.context.options import SearchOptions
from autotune.searching.run.events import Event, TrialStarted
from autotune.searching.search import search
from goldens.dumps import database_lines, leaves
from goldens.replays import ClockedRunner, events_of, options, table_named

PLACE = Path(__file__).parent / "studies"
_FILES = ("study.db", "best.yaml", "best-so-far.yaml")
_STORAGE = "sqlite:///study.db"


@dataclass(frozen=True)
class Case:
    """A search whose study is kept."""

    table: str
    seed: int
    trials: int
    stopped_after: int | None = None
    """Trials that are begun before the search is stopped; None: it comes to its end."""
    is_killed: bool = False
    """True if the last of them is left running."""

    def options(self, name: str) -> SearchOptions:
        """Return the search, in the working directory."""
        table = table_named(self.table)
        return options(table, self.seed, study=name, storage=_STORAGE, trials=self.trials)

    def runner(self) -> ClockedRunner:
        """Return what answers its jobs."""
        return ClockedRunner(table_named(self.table), self.seed)


CASES = {
    "finished": Case("digits_cnn", 1, 8),
    "interrupted": Case("photos_jpeg", 0, 12, stopped_after=6, is_killed=True),
}


def write_study(name: str) -> None:
    """Run a search until it is stopped, and keep its study's files."""
    case = CASES[name]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        events = search(case.options(name), case.runner())
        for _ in _until_stopped(events, case):
            pass
        if not case.is_killed:
            events.close()
        _keep(Path(), PLACE / name)
        events.close()


def _until_stopped(events: Iterator[Event], case: Case) -> Iterator[Event]:
    begun = 0
    for event in events:
        yield event
        begun += isinstance(event, TrialStarted)
        if begun == case.stopped_after:
            return


def _keep(folder: Path, place: Path) -> None:
    """Copy a study's files."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for name in _FILES:
        if (folder / name).exists():
            shutil.copyfile(folder / name, place / name)
    with closing(sqlite3.connect(place / "study.db")) as database:
        database.execute("VACUUM")


def resumed(name: str) -> Iterator[str]:
    """Yield the events of the search that goes on with a kept study, and the study's trials."""
    case = CASES[name]
    with _copied(name) as folder, contextlib.chdir(folder / name):
        yield from events_of(case.options(name), case.runner())
        yield from database_lines(Path("study.db"))


def reported(name: str) -> Iterator[str]:
    """Yield what `autotune report --json` says of a kept study."""
    with _copied(name) as folder:
        yield from leaves(json.loads(_autotune(folder, "report", name, "--json", "-")))


def stored() -> Iterator[str]:
    """Yield the database of one whole search."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        case = Case("digits_cnn", 0, 16)
        for _ in search(case.options("golden"), case.runner()):
            pass
        yield from database_lines(Path("study.db"))


@contextlib.contextmanager
def _copied(name: str) -> Iterator[Path]:
    """Yield a folder that holds a copy of a kept study under its name."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(PLACE / name, Path(folder, name))
        yield Path(folder)


def _autotune(folder: Path, *arguments: str) -> str:
    """Return what a command prints that is given in `folder`.

    Raises:
        RuntimeError: the command fails.
    """
    command = [sys.executable, "-m", "autotune", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr}")
    return done.stdout
