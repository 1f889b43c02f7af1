"""The tiers of the suite, a command each, told by the folder of a test.

`make test` runs what trains nothing: `pure` (code alone), `scripted` (searches with a scripted
runner) and `repo` (the project itself). `make test-real` runs `real`: promises with real processes.
`make test-long` runs `gpu` and each folder `long`: frameworks, the zoo, presets, other
interpreters, the site, the wheel, and what shows once more what others show.

An entry of tiers.txt is a file or a test that differs from its folder. A test may also have the
mark `real` or `long`, and values of its parameters come `late`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from covering import TESTS, folder_tier, listed


def late(*values: object) -> Any:
    """Return values of parameters with which `make test-long` alone runs a test."""
    return pytest.param(*values, marks=pytest.mark.long)


def late_in(values: Iterable[object], *late_ones: object) -> list[Any]:
    """Return all values of a parameter, some of them as `late` ones."""
    return [late(value) if value in late_ones else value for value in values]


def mark(items: Iterable[pytest.Item], are_whole_files: bool) -> None:
    """Mark tests as `real` or `long`; refuse an entry that names no test of a whole file."""
    tiers = listed()
    files, named = set(), set()
    for item in items:
        files.add(_path(item))
        entries = [name for name in _names(item) if name in tiers]
        named.update(entries)
        tier = tiers[entries[0]] if entries else _own(item)
        if tier != "test":
            item.add_marker(tier)
    idle = [each for each in tiers if each.partition("::")[0] in files and each not in named]
    if are_whole_files and idle:
        raise pytest.UsageError("\n".join(["tests/tiers.txt names no test by:", *idle]))


def _own(item: pytest.Item) -> str:
    """Return the tier that the folder and the marks of a test tell."""
    marks = [tier for tier in ("long", "real") if item.get_closest_marker(tier)]
    return (marks or [folder_tier(_path(item))])[0]


def _names(item: pytest.Item) -> Iterator[str]:
    """Yield the names under which a test may stand in the file, the narrowest first."""
    path = _path(item)
    yield from (f"{path}::{item.name}", f"{path}::{item.name.partition('[')[0]}", path)


def _path(item: pytest.Item) -> str:
    return str(item.path.relative_to(TESTS))
