"""Search an example and draw the pictures of the documentation from that search.

    python docs/pictures.py [--replay] [--study FOLDER] [NAME ...]

FOLDER keeps the search, which is drawn again the next time without a new one. The pictures show the
program's own output, and docs/reference/best-yaml.md shows the file of the same search. With
`--replay`, the search is answered from the recorded table of the example, at the recorded pace, so
that it takes seconds on any machine; its file and its lines are not kept. To add a picture, write a
function and name it in `PICTURES`.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from best_yaml_page import RECORDED
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from autotune.console.progress import LiveProgress, PlainProgress, to_stderr
from autotune.context.options import (
    Budget,
    Resources,
    SamplingOptions,
    SearchOptions,
    StudyOptions,
    WorkloadOptions,
)
from autotune.process.runner import Runner, SubprocessRunner
from autotune.searching.run.events import Event, PhaseStarted, TrialStarted
from autotune.searching.search import search

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

NAME = "digits_cnn"
STUDY = Path("studies", NAME)
COMMAND = f"autotune search {STUDY / 'model.py'}"
SHOWN = 8
"""Number of the trial during which the terminal is shown; the last one if there are fewer."""
_TERMINAL, _LOG = "progress.svg", "search.log"


def main() -> None:
    """Search, unless FOLDER holds a search, and draw the named pictures, or all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(PICTURES), metavar="NAME")
    parser.add_argument("--study", type=Path, metavar="FOLDER")
    parser.add_argument("--replay", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = (arguments.study or Path(scratch)).resolve()
        if not (folder / _LOG).exists():
            (replayed if arguments.replay else searched)(folder)
        for name in arguments.names:
            (DOCS / name).write_bytes(PICTURES[name](folder))
            print(f"{DOCS / name}: {(DOCS / name).stat().st_size} bytes")
        if not arguments.replay:
            shutil.copy(folder / _LOG, RECORDED.with_name("recorded_search.log"))
            shutil.copy(folder / STUDY / "best.yaml", RECORDED)


def searched(folder: Path) -> None:
    """Run the example's search."""
    with SubprocessRunner(folder / "inductor") as runner:
        watched(folder, _options(), runner, time.time)


def replayed(folder: Path) -> None:
    """Answer the example's search from its recorded table, with a clock that shows its seconds."""
    from benchmarks.budget import set_clock
    from benchmarks.replay import ReplayRunner
    from benchmarks.search import TABLES, truth_of

    table, begun, start = truth_of(NAME).table, time.monotonic(), time.time()
    runner = ReplayRunner(table)
    set_clock(SimpleNamespace(**{**vars(time), "monotonic": lambda: begun + runner.seconds}))
    options = replace(
        _options(),
        budget=Budget(seconds=240.0),
        resources=Resources(memory_limit_bytes=table.header.memory_limit_bytes),
        sampling=SamplingOptions(space=str(TABLES / f"{NAME}.yaml")),
    )
    watched(folder, options, runner, lambda: start + runner.seconds)


def watched(folder: Path, options: SearchOptions, runner: Runner, now: Callable[[], float]) -> None:
    """Search; keep the search's lines in a file and its table as a picture."""
    (folder / STUDY).mkdir(parents=True)
    shutil.copy(ROOT / STUDY / "model.py", folder / STUDY)
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        to_stderr(line)

    plain = PlainProgress(say)
    drawn = LiveProgress(Console(file=io.StringIO()), now)
    with chdir(folder):
        for event in search(options, runner):
            plain.show(event)
            drawn.show(event)
            if _is_shown(event):
                (folder / _TERMINAL).write_bytes(_terminal(drawn))
    (folder / _LOG).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _is_shown(event: Event) -> bool:
    """Return True for the event of the picture, or the nearest one so far."""
    if isinstance(event, PhaseStarted):
        return event.phase == "search"
    return isinstance(event, TrialStarted) and event.number <= SHOWN


def _options() -> SearchOptions:
    return SearchOptions(
        workload=WorkloadOptions(model_path=STUDY / "model.py"),
        study=StudyOptions(
            name=NAME,
            storage=f"sqlite:///{STUDY / 'study.db'}",
            folder=STUDY,
            out=STUDY / "best.yaml",
        ),
        sampling=SamplingOptions(space="quick"),
    )


def _terminal(shown: LiveProgress) -> bytes:
    """Return the terminal as it is now, as SVG."""
    console = Console(file=io.StringIO(), record=True, force_terminal=True, width=124, height=30)
    console.print(shown.state())
    # Without fonts from other hosts: a picture makes no request.
    template = re.sub(
        r"@font-face \{\{.*?\}\}\s*|<!--.*?-->\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL
    )
    svg = console.export_svg(title=COMMAND, code_format=template, unique_id="p")
    return svg.encode()


def progress(folder: Path) -> bytes:
    """Return the terminal in the middle of a search, as SVG."""
    return (folder / _TERMINAL).read_bytes()


def dashboard(folder: Path) -> bytes:
    """Return the first page of a study in Optuna Dashboard, as PNG."""
    from dashboards import running_dashboard

    with (
        running_dashboard(folder, NAME, "--port", "0") as running,
        _browser() as browser,
    ):
        page = browser.new_page(viewport={"width": 1200, "height": 800})
        page.goto(running.url)
        page.get_by_role("heading", name="faster than your settings").wait_for()
        return page.screenshot()


def report(folder: Path) -> bytes:
    """Return the top of the report of a search, as PNG."""
    command = [sys.executable, "-m", "autotune", "report", str(STUDY)]
    html = folder / "report.html"
    subprocess.run([*command, "--html", str(html), "--force"], cwd=folder, check=True)
    with _browser() as browser:
        page = browser.new_page(viewport={"width": 900, "height": 1000})
        page.goto(html.as_uri())
        return page.screenshot()


@contextmanager
def _browser() -> Iterator[Browser]:
    from browsers import chromium, launched

    program = chromium()
    if program is None:
        sys.exit("install chromium, then draw the pictures again")
    with launched(program) as browser:
        yield browser


PICTURES: dict[str, Callable[[Path], bytes]] = {
    "progress.svg": progress,
    "dashboard.png": dashboard,
    "report.png": report,
}

if __name__ == "__main__":
    main()
