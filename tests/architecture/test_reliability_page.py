"""Every promise of docs/reliability.md has a test, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "reliability.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)))
ROWS = re.findall(r"^\| ([A-Z]\d+ |)\|(.*)\|$", PAGE, re.MULTILINE)


def functions_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("file", "test"), NAMED, ids=lambda part: part)
def test_a_test_that_the_page_names_exists(file: str, test: str) -> None:
    assert test.startswith("test_")
    assert test in functions_in(TESTS / file)


def test_every_row_names_a_test() -> None:
    assert len(ROWS) > 60
    assert [row for number, row in ROWS if number and "::test_" not in row] == []


def test_no_row_stands_twice() -> None:
    numbers = [number for number, _ in ROWS if number]
    assert len(set(numbers)) == len(numbers)
