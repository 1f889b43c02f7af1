"""Every row of docs/reliability.md has a test that is marked with it, by `@covers("T3")`."""

from __future__ import annotations

from collections import Counter

from covering import PAGE, marked, rows_of, with_tests

TEXT = PAGE.read_text(encoding="utf-8")
ROWS = rows_of(TEXT)


def test_every_row_is_covered_by_a_test() -> None:
    assert len(ROWS) > 60
    assert set(ROWS) - {row for row, _ in marked()} == set()


def test_every_mark_names_a_row() -> None:
    assert [(row, test) for row, test in marked() if row not in ROWS] == []


def test_no_row_stands_twice() -> None:
    assert [row for row, count in Counter(ROWS).items() if count > 1] == []


def test_the_table_of_tests_is_what_the_marks_say_now() -> None:
    assert with_tests(TEXT) == TEXT, "docs/reliability.md is stale: run `make docs`"
