"""Every row of docs/reliability.md has a test that is marked with it, by `@covers("T3")`.

A mark alone shows nothing: `python tests/covering.py check` looks at what ran and passed.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import covering
from covering import PAGE, Mark, marked, not_shown, passed_in, rows_of, with_tests

pytest_plugins = "pytester"
TEXT = PAGE.read_text(encoding="utf-8")
ROWS = rows_of(TEXT)


def test_every_row_is_covered_by_a_test() -> None:
    assert len(ROWS) > 60
    assert set(ROWS) - {mark.row for mark in marked()} == set()


def test_every_mark_names_a_row() -> None:
    assert [mark for mark in marked() if mark.row not in ROWS] == []


def test_no_row_stands_twice() -> None:
    assert [row for row, count in Counter(ROWS).items() if count > 1] == []


def test_the_table_of_tests_is_what_the_marks_say_now() -> None:
    assert with_tests(TEXT) == TEXT, "docs/reliability.md is stale: run `make docs`"


MARKS = """
from covering import covers

@covers("T1")
def test_passes_always(): pass

@covers("T2")
@pytest.mark.parametrize("number", [1, 2])
def test_passes_once(number): assert number == 1

@covers("T3")
def test_skips(): pytest.skip()

@covers("T4")
@pytest.mark.xfail(reason="not built")
def test_fails(): assert False
"""


def test_only_what_ran_and_passed_is_shown(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest(PLUGIN)
    pytester.makepyfile("import pytest" + MARKS)
    flags = ("-p", "xdist", "-n", "1", "-k", "not passes_always")
    pytester.runpytest_subprocess(*flags, "--junitxml=ran.xml")
    passed = passed_in([pytester.path / "ran.xml"])
    assert passed == {"T2"}
    passed.add("T1")
    marks = [Mark(row, "test", is_long=row == "T3") for row in ("T1", "T2", "T3", "T4")]
    assert not_shown(marks, passed, is_long=False) == ["T4"]
    assert not_shown(marks, passed, is_long=True) == ["T3"]


PLUGIN = f"""
import sys
sys.path.insert(0, {str(Path(covering.__file__).parent)!r})
import covering

def pytest_collection_modifyitems(items): covering.note(items)
def pytest_configure(config): config.addinivalue_line("markers", "covers(*rows)")
"""
