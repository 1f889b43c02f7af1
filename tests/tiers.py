"""The tiers of the suite, a command each, told by the folder of a test.

`make test` runs what trains nothing: `pure` (code alone), `scripted` (searches with a scripted
runner) and `repo` (the project itself). `make test-real` runs `real`: promises with real processes.
`make test-long` runs `gpu`, and what tiers.txt calls long: frameworks, the zoo, presets, other
interpreters, the site, the wheel, and what shows once more what others show.

An entry of tiers.txt is a folder, a file, a test, or a test with one of its parameters that differs
from its folder; under [test] are one search of a model.py and one of a script. A test may also have
the mark `long`, or `slow` for a real one.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

_TESTS = Path(__file__).parent


def mark(items: Iterable[pytest.Item], are_whole_files: bool) -> None:
    """Mark tests as `real` or `long`; refuse an entry that names no test of a whole file."""
    listed = _listed()
    files, named = set(), set()
    for item in items:
        files.add(str(_path(item)))
        entries = [name for name in _names(item) if name in listed]
        named.update(entries)
        tier = listed[entries[0]] if entries else _own(item)
        if tier != "test":
            item.add_marker(tier)
    idle = [each for each in listed if each.partition("::")[0] in files and each not in named]
    if are_whole_files and idle:
        raise pytest.UsageError("\n".join(["tests/tiers.txt names no test by:", *idle]))


def _listed() -> dict[str, str]:
    """Return the tier of each entry of the file."""
    sections = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").split("\n\n")
    lines = (section.splitlines() for section in sections)
    return {name: head.strip("[]") for head, *names in lines for name in names}


def _own(item: pytest.Item) -> str:
    """Return the tier that the folder and the marks of a test tell."""
    folder = _path(item).parts[0]
    if folder == "gpu" or item.get_closest_marker("long"):
        return "long"
    return "real" if folder == "real" or item.get_closest_marker("slow") else "test"


def _names(item: pytest.Item) -> Iterator[str]:
    """Yield the names under which a test may stand in the file, the narrowest first."""
    path = _path(item)
    yield from (f"{path}::{item.name}", f"{path}::{item.name.partition('[')[0]}")
    yield from map(str, [path, *path.parents])


def _path(item: pytest.Item) -> Path:
    return item.path.relative_to(_TESTS)
