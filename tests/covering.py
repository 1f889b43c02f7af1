"""The rows of docs/dev/reliability.md that a test covers: a test says so by `@covers("T3")`.

`python tests/covering.py` writes the table of tests at the end of that page. `python
tests/covering.py check REPORTS...` reads pytest's reports of whole runs (--junitxml) and names the
rows of which no test ran and passed. That is an error where AUTOTUNE_ALL_TESTS=required, so that no
test is skipped except for want of a GPU. `check-long` looks at long tests instead.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from xml.etree import ElementTree as Xml

if TYPE_CHECKING:
    import pytest

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "dev" / "reliability.md"
BEGIN = "<!-- `make docs` writes this table from the marks of the tests -->"
END = "<!-- end of the table -->"
NO_GPU = "needs a CUDA device"
"""Beginning of the reason why a test is skipped on a machine without a GPU."""


def covers(*rows: str) -> pytest.MarkDecorator:
    """Mark a test with the rows that it covers, such as "T3"."""
    import pytest  # `make docs` runs this file without it

    return pytest.mark.covers(*rows)


def rows_of(page: str) -> list[str]:
    """Return the rows of the page's tables of faults, in its order."""
    return re.findall(r"^\| ([A-Z]\d+) \|", page.partition(BEGIN)[0], re.MULTILINE)


class Mark(NamedTuple):
    """A row, and a test that covers it."""

    row: str
    test: str
    is_long: bool
    """True if `make test-long` alone runs the test."""


def note(items: Iterable[pytest.Item]) -> None:
    """Let reports say which rows each test covers."""
    for item in items:
        rows = {row for mark in item.iter_markers("covers") for row in mark.args}
        item.user_properties += [("covers", row) for row in sorted(rows)]


def passed_in(reports: Iterable[Path]) -> set[str]:
    """Return the rows of the tests that ran and passed."""
    faults = {"failure", "error", "skipped"}
    return _rows_in(reports, lambda case: not faults & {part.tag for part in case})


def without_gpu(reports: Iterable[Path]) -> set[str]:
    """Return the rows of the tests that were skipped for want of a GPU."""

    def lacked_one(case: Xml.Element) -> bool:
        skipped = case.find("skipped")
        return skipped is not None and str(skipped.get("message")).startswith(NO_GPU)

    return _rows_in(reports, lacked_one)


def _rows_in(reports: Iterable[Path], holds: Callable[[Xml.Element], bool]) -> set[str]:
    cases = [case for report in reports for case in Xml.parse(report).iter("testcase")]
    return {
        str(one.get("value"))
        for case in cases
        if holds(case)
        for one in case.iter("property")
        if one.get("name") == "covers"
    }


def listed() -> dict[str, str]:
    """Return the tier of each entry of tests/tiers.txt."""
    sections = TESTS.joinpath("tiers.txt").read_text(encoding="utf-8").split("\n\n")
    lines = (section.splitlines() for section in sections)
    return {name: head.strip("[]") for head, *names in lines for name in names}


def folder_tier(file: str) -> str:
    """Return the tier that the folder of a file tells."""
    folders = file.split("/")[:-1]
    return "long" if {"gpu", "long"} & set(folders) else "real" if "real" in folders else "test"


def marked() -> list[Mark]:
    """Return each row with a test that covers it, in the order of files and lines."""
    tiers = listed()
    return [
        Mark(row, name, tiers.get(name, tiers.get(file, tier)) == "long")
        for path in sorted(TESTS.rglob("test_*.py"))
        if (file := str(path.relative_to(TESTS)))
        for test, tier in _tests(path.read_text(encoding="utf-8"), folder_tier(file))
        if (name := f"{file}::{test.name}")
        for row in _rows(test)
    ]


def _tests(code: str, tier: str) -> Iterator[tuple[ast.FunctionDef, str]]:
    for node in ast.parse(code).body if "@covers(" in code else []:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            marks = map(ast.unparse, node.decorator_list)
            yield node, "long" if "pytest.mark.long" in marks else tier


def _rows(test: ast.FunctionDef) -> Iterator[str]:
    for mark in test.decorator_list:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "covers":
            yield from map(ast.literal_eval, mark.args)


def with_tests(page: str) -> str:
    """Return the page with the table of tests as the marks give it, those in `long` named so."""
    before, _, rest = page.partition(BEGIN)
    marks = marked()
    table = ["| | tests |", "|---|---|"]
    for row in rows_of(page):
        tests = [f"`{mark.test}`{' (long)' * mark.is_long}" for mark in marks if mark.row == row]
        table.append(f"| {row} | {' '.join(tests)} |")
    return "\n".join([f"{before}{BEGIN}", "", *table, "", END]) + rest.partition(END)[2]


def not_shown(marks: list[Mark], passed: set[str], is_long: bool) -> list[str]:
    """Return the rows that have a test of this kind, and none that ran and passed."""
    return sorted({mark.row for mark in marks if mark.is_long == is_long} - passed)


def _check(task: str, reports: Sequence[Path]) -> int:
    """Return the exit code."""
    passed, lacking = passed_in(reports), without_gpu(reports)
    if lacking - passed:
        print(f"not shown, for want of a GPU: {', '.join(sorted(lacking - passed))}")
    rows = not_shown(marked(), passed | lacking, is_long=task == "check-long")
    if rows:
        print(f"no test of {', '.join(rows)} in {PAGE.name} ran and passed")
    return int(bool(rows) and os.environ.get("AUTOTUNE_ALL_TESTS") == "required")


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(_check(sys.argv[1], [*map(Path, sys.argv[2:])]))
    PAGE.write_text(with_tests(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
