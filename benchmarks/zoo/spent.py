"""Print where the time of a search went, from the folders of its processes.

    python -m benchmarks.zoo.spent STUDY [STUDY ...]

STUDY is a folder such as studies/train. A process counts from its launch to its outcome; what lies
between two processes is the parent's own work and their starts.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

KINDS = {
    "inspect": "observing the script",
    "0000": "your settings, timed",
    "diagnosis": "stages alone",
    "accuracy": "accuracy seeds",
    "gates": "numerics checks",
    "anchors": "your settings again",
    "again": "near candidates again",
    "confirm": "rounds that confirm",
    "arithmetic": "arithmetic of the answer",
}


class Process(NamedTuple):
    """A process of a search."""

    launched: float
    ended: float
    kind: str


def main() -> None:
    """Print a table for each study that is named."""
    for name in sys.argv[1:]:
        print(f"\n{name}\n\n| what | processes | seconds | share |\n|---|---|---|---|")
        for row in rows(sorted(processes(Path(name) / "trials"))):
            print(f"| {' | '.join(row)} |")


def processes(trials: Path) -> Iterator[Process]:
    """Yield the processes of a study that have ended."""
    for outcome in trials.rglob("outcome.json"):
        folder = outcome.parent
        launch = folder / "launch"
        if launch.exists():
            top = folder.relative_to(trials).parts[0]
            kind = KINDS.get(top, "trials")
            yield Process(launch.stat().st_mtime, outcome.stat().st_mtime, kind)


def rows(found: list[Process]) -> Iterator[list[str]]:
    """Yield a row for each kind of process, then those of the time between them and of all."""
    if not found:
        return
    spent: dict[str, list[float]] = defaultdict(list)
    for one in found:
        spent[one.kind].append(one.ended - one.launched)
    whole = max(one.ended for one in found) - found[0].launched
    for kind, seconds in spent.items():
        yield _row(kind, str(len(seconds)), sum(seconds), whole)
    yield _row("between processes", "", whole - sum(map(sum, spent.values())), whole)
    yield _row("from the first launch to the last end", str(len(found)), whole, whole)


def _row(what: str, count: str, seconds: float, whole: float) -> list[str]:
    return [what, count, f"{seconds:.1f}", f"{100 * seconds / whole:.0f} %"]


if __name__ == "__main__":
    main()
