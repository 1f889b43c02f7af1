"""The tiers of the suite, a command each. Their tests stand in tiers.txt.

`make test` runs what trains nothing: code alone, and searches whose runner is scripted. Beside them
are one search of a model.py and one of a script with real processes, the [shown]. `make check` adds
the [real], promises with real processes: an answer is never slower, what was measured is what runs,
nothing is lost. `make test-long` runs the [long]: frameworks, the zoo, presets, other interpreters,
the GPU kit, the site, the wheel, documented command lines, bodies of GPU tests on the CPU, goldens,
pages in a browser but one, and real processes that show once more what others show.

An entry is a folder, a file or a test. A test may also have the mark `long`, or `slow` for a real.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

_TESTS = Path(__file__).parent


def mark(items: Iterable[pytest.Item]) -> None:
    """Mark tests as `real` or `long`."""
    sections = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").split("\n\n")
    tiers = {head: set(names) for head, *names in map(str.splitlines, sections)}
    for item in items:
        names = set(_names(item))
        is_real = names & tiers["[real]"] or item.get_closest_marker("slow")
        if names & tiers["[long]"]:
            item.add_marker(pytest.mark.long)
        elif is_real and not names & tiers["[shown]"]:
            item.add_marker(pytest.mark.real)


def _names(item: pytest.Item) -> Iterator[str]:
    """Yield the names under which a test may stand in the file."""
    path = item.path.relative_to(_TESTS)
    yield from map(str, [path, *path.parents])
    yield from (f"{path}::{item.name}", f"{path}::{item.name.partition('[')[0]}")
