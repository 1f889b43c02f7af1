"""Draws the pictures of the documentation, from a search that is replayed against a recorded table.

    python docs/pictures.py [NAME ...]

What they show is what the program draws; to add one, write a function and name it in `PICTURES`.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from autotune.live import LiveProgress
from autotune.tuning.events import Event, TrialEnded, TrialStarted
from autotune.tuning.running.replay import ReplayRunner
from autotune.tuning.running.table import read_table
from autotune.tuning.scene import SearchOptions
from autotune.tuning.search import search

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT / "tests"))

STUDY = "digits_cnn"
TRIALS = 24
SHOWN = 13
"""The trial during which the terminal is shown."""
THREE_O_CLOCK = 1_700_060_400.0


def main() -> None:
    """Draw the pictures that were named, or all."""
    for name in sys.argv[1:] or PICTURES:
        with tempfile.TemporaryDirectory() as folder:
            (DOCS / name).write_bytes(PICTURES[name](Path(folder)))
        print(f"{DOCS / name}: {(DOCS / name).stat().st_size} bytes")


def replayed(folder: Path) -> Iterator[tuple[Event, float]]:
    """The events of a search, each with the seconds that measuring until then would have taken."""
    table = read_table(ROOT / "studies" / "tables" / f"{STUDY}.jsonl.xz")
    place = folder / "studies" / STUDY
    place.mkdir(parents=True)
    options = SearchOptions(
        model_path=ROOT / "studies" / STUDY / "model.py",
        study=STUDY,
        storage=f"sqlite:///{place / 'study.db'}",
        folder=place,
        out=place / "best.yaml",
        space=str(ROOT / "studies" / "tables" / f"{STUDY}.yaml"),
        trials=TRIALS,
        memory_limit_bytes=table.header.memory_limit_bytes,
    )
    runner = ReplayRunner(table, seed=1)
    trials: list[float] = []
    for event in search(options, runner):
        if isinstance(event, TrialEnded):
            trials.append(runner.seconds)
            each = [after - before for before, after in pairwise(trials)]
            left = (TRIALS - len(trials) + 12) * median(each or [0.0])
            yield replace(event, eta_seconds=left), runner.seconds
        else:
            yield event, runner.seconds


def progress(folder: Path) -> bytes:
    """A terminal in the middle of a search."""
    now = THREE_O_CLOCK
    shown = LiveProgress(Console(file=io.StringIO()), now=lambda: now)
    for event, seconds in replayed(folder):
        now = THREE_O_CLOCK + seconds
        shown.show(event)
        if isinstance(event, TrialStarted) and event.number == SHOWN:
            break
    console = Console(file=io.StringIO(), record=True, force_terminal=True, width=124, height=30)
    console.print(shown.board)
    # Without fonts from elsewhere: a picture asks nobody for anything.
    template = re.sub(
        r"@font-face \{\{.*?\}\}\s*|<!--.*?-->\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL
    )
    svg = console.export_svg(title="autotune search model.py", code_format=template, unique_id="p")
    return svg.encode()


def dashboard(folder: Path) -> bytes:
    """The first page of a study in Optuna Dashboard."""
    from browsers import chromium, launched
    from dashboards import running_dashboard

    for _ in replayed(folder):
        pass
    program = chromium()
    if program is None:
        sys.exit("install chromium, then draw dashboard.png again")
    with (
        running_dashboard(folder, STUDY, "--port", "0") as running,
        launched(program) as browser,
    ):
        page = browser.new_page(viewport={"width": 1200, "height": 800})
        page.goto(f"{running.url}dashboard/studies/1")
        page.locator("#plot-history .point").first.wait_for()
        page.locator(".js-plotly-plot .barlayer .point").first.wait_for()
        return page.screenshot()


def report(folder: Path) -> bytes:
    """The top of the report of a search."""
    from browsers import chromium, launched

    for _ in replayed(folder):
        pass
    program = chromium()
    if program is None:
        sys.exit("install chromium, then draw report.png again")
    written = folder / "report.html"
    command = [sys.executable, "-m", "autotune", "report", str(folder / "studies" / STUDY)]
    subprocess.run([*command, "--html", str(written)], check=True)
    with launched(program) as browser:
        page = browser.new_page(viewport={"width": 900, "height": 1000})
        page.goto(written.as_uri())
        return page.screenshot()


PICTURES: dict[str, Callable[[Path], bytes]] = {
    "progress.svg": progress,
    "dashboard.png": dashboard,
    "report.png": report,
}

if __name__ == "__main__":
    main()
