"""The rows of docs/reliability.md that a test covers: a test says so by `@covers("T3")`.

`python tests/covering.py` writes the table of tests at the end of that page.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "reliability.md"
BEGIN = "<!-- `make docs` writes this table from the marks of the tests -->"
END = "<!-- end of the table -->"


def covers(*rows: str) -> pytest.MarkDecorator:
    """Mark a test with the rows that it covers, such as "T3"."""
    import pytest  # `make docs` runs this file without it

    return pytest.mark.covers(*rows)


def rows_of(page: str) -> list[str]:
    """Return the rows of the page's tables of faults, in its order."""
    return re.findall(r"^\| ([A-Z]\d+) \|", page.partition(BEGIN)[0], re.MULTILINE)


def marked() -> list[tuple[str, str]]:
    """Return each row with a test that covers it, in the order of files and lines."""
    return [
        (row, f"{path.relative_to(TESTS)}::{test.name}")
        for path in sorted(TESTS.rglob("test_*.py"))
        for test in _tests(path.read_text(encoding="utf-8"))
        for row in _rows(test)
    ]


def _tests(code: str) -> Iterator[ast.FunctionDef]:
    for node in ast.parse(code).body if "@covers(" in code else []:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node


def _rows(test: ast.FunctionDef) -> Iterator[str]:
    for mark in test.decorator_list:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "covers":
            yield from map(ast.literal_eval, mark.args)


def with_tests(page: str) -> str:
    """Return the page with the table of tests as the marks give it."""
    before, _, rest = page.partition(BEGIN)
    marks = marked()
    table = ["| | tests |", "|---|---|"]
    for row in rows_of(page):
        table.append(f"| {row} | {' '.join(f'`{test}`' for r, test in marks if r == row)} |")
    return "\n".join([f"{before}{BEGIN}", "", *table, "", END]) + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(with_tests(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
