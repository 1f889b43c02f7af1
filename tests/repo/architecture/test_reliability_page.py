"""Every row of docs/dev/reliability.md has a test that is marked with it, by `@covers("T3")`.

A mark alone shows nothing: `python tests/covering.py check` looks at what ran and passed.
"""

from collections import Counter

from covering import PAGE, Mark, marked, not_shown, passed_in, rows_of, with_tests

TEXT = PAGE.read_text(encoding="utf-8")
ROWS = rows_of(TEXT)


def test_every_row_is_covered_by_a_test():
    assert len(ROWS) > 60
    assert set(ROWS) - {mark.row for mark in marked()} == set()


def test_every_mark_names_a_row():
    assert [mark for mark in marked() if mark.row not in ROWS] == []


def test_no_row_stands_twice():
    assert [row for row, count in Counter(ROWS).items() if count > 1] == []


def test_the_table_of_tests_is_what_the_marks_say_now():
    assert with_tests(TEXT) == TEXT, "docs/dev/reliability.md is stale: run `make docs`"


RAN = """<testsuites><testsuite>
<testcase><properties><property name="covers" value="T1"/></properties></testcase>
<testcase><properties><property name="covers" value="T2"/></properties><failure/></testcase>
<testcase><properties><property name="covers" value="T3"/></properties><skipped/></testcase>
<testcase><properties><property name="covers" value="T4"/></properties><error/></testcase>
<testcase><properties><property name="other" value="T5"/></properties></testcase>
</testsuite></testsuites>"""


def test_only_what_ran_and_passed_is_shown(tmp_path):
    report = tmp_path / "ran.xml"
    report.write_text(RAN)
    passed = passed_in([report])
    assert passed == {"T1"}
    marks = [Mark(row, "test", is_long=row == "T3") for row in ("T1", "T2", "T3")]
    assert not_shown(marks, passed, is_long=False) == ["T2"]
    assert not_shown(marks, passed, is_long=True) == ["T3"]
