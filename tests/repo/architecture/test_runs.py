"""The suite of itself: tiers, reruns, rows of docs/dev/reliability.md, what its servers fork."""

import json
import os
import re
import signal
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

import durations
import fork_server
import forking
import run_tests
from covering import (
    NO_GPU,
    PAGE,
    Mark,
    marked,
    not_shown,
    passed_in,
    rows_of,
    with_tests,
    without_gpu,
)

ENDED = '<testcase classname="tests.test_it" name="test_{}">{}</testcase>'
FAILURE = "<failure/>"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run as many tests that fail beside others, and again with this exit code; what is told."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build").mkdir()

    def main(failures, again=0, ends=""):
        def pytest_run(report, *arguments):
            is_again = "--last-failed" in arguments
            cases = (ENDED.format(n, ends if is_again else FAILURE) for n in range(failures))
            report.write_text(f"<testsuite>{''.join(cases)}</testsuite>")
            return again if is_again else int(failures > 0)

        monkeypatch.setattr(run_tests, "_run", pytest_run)
        monkeypatch.setattr("sys.argv", ["run_tests.py", "some"])
        return run_tests.main(), capsys.readouterr().out

    return main


def test_what_failed_beside_others_and_not_alone_is_counted_and_named(run):
    assert run(0) == (0, "")
    code, said = run(3)
    assert code == 0
    assert "tests.test_it::test_2" in said
    assert "3 of at most 3 needed a second run." in said


def test_more_than_three_reruns_are_a_failure(run):
    code, said = run(4)
    assert code != 0
    assert "4 failed beside other tests" in said


@pytest.mark.parametrize("again", [1, 2, 5])
def test_what_fails_again_or_is_not_found_again_is_a_failure(run, again):
    assert run(2, again)[0] != 0


def test_what_is_skipped_in_the_second_run_is_a_failure(run):
    code, said = run(2, ends="<skipped/>")
    assert code != 0
    assert "They did not pass in it:\n  tests.test_it::test_0\n" in said


TIMED = """<testsuites><testsuite>
<testcase classname="tests.pure.test_one" name="test_a[x]" time="0.25"/>
<testcase classname="tests.real.kills.test_two" name="test_b" time="2"/>
<testcase classname="tests.pure.test_one" name="test_c" time="0.5"/>
</testsuite></testsuites>"""


def test_the_slowest_tests_of_a_run_and_the_seconds_of_folders_are_told(tmp_path):
    report = tmp_path / "timed.xml"
    report.write_text(TIMED)
    lines = [line.split() for line in durations.summary(report).splitlines()]
    rows = [line for line in lines if len(line) == 2]
    assert rows == [
        ["2.0", "tests/real/kills/test_two.py::test_b"],
        ["0.5", "tests/pure/test_one.py::test_c"],
        ["0.2", "tests/pure/test_one.py::test_a[x]"],
        ["2.0", "tests/real/kills"],
        ["0.8", "tests/pure"],
    ]


TESTS = Path(__file__).parents[2]


def test_the_files_whose_seconds_are_stored_are_there():
    stored = json.loads((TESTS / "durations.json").read_text(encoding="utf-8"))
    files = [file for file in stored if file != "locked"]
    assert len(files) > 50
    assert [file for file in files if not (TESTS.parent / file).exists()] == []


def test_a_program_whose_server_died_was_killed():
    ours, servers = os.pipe()
    os.close(servers)
    assert forking._Forked(os.getpid(), ours).status() == signal.SIGKILL


def test_the_file_of_every_entry_is_there():
    """`tiers.mark` refuses an entry that names no test of its file."""
    entries = (TESTS / "tiers.txt").read_text(encoding="utf-8").splitlines()
    listed = [entry for entry in entries if entry and not entry.startswith("[")]
    assert len(listed) > 50
    assert [entry for entry in listed if not (TESTS / entry.partition("::")[0]).exists()] == []


def test_every_test_lies_in_a_folder_that_has_a_tier():
    folders = {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")}
    assert folders <= {"gpu", "pure", "real", "repo", "scripted"}


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


RAN = f"""<testsuites><testsuite>
<testcase><properties><property name="covers" value="T1"/></properties></testcase>
<testcase><properties><property name="covers" value="T2"/></properties><failure/></testcase>
<testcase><properties><property name="covers" value="T3"/></properties><skipped/></testcase>
<testcase><properties><property name="covers" value="T4"/></properties><error/></testcase>
<testcase><properties><property name="other" value="T5"/></properties></testcase>
<testcase><properties><property name="covers" value="T6"/></properties>
<skipped message="{NO_GPU}: it reads a counter of one"/></testcase>
</testsuite></testsuites>"""


def test_only_what_ran_and_passed_is_shown(tmp_path):
    report = tmp_path / "ran.xml"
    report.write_text(RAN)
    passed = passed_in([report])
    assert passed == {"T1"}
    assert without_gpu([report]) == {"T6"}
    marks = [Mark(row, "test", is_long=row == "T3") for row in ("T1", "T2", "T3")]
    assert not_shown(marks, passed, is_long=False) == ["T2"]
    assert not_shown(marks, passed, is_long=True) == ["T3"]


PACKAGE = Path(__file__).parents[3] / "autotune"
CHILDREN = {
    name
    for path in PACKAGE.rglob("*.py")
    for name in re.findall(r'"-m", "(autotune\.[\w.]+)"', path.read_text(encoding="utf-8"))
}


def test_children_are_found():
    assert len(CHILDREN) >= 2


@pytest.mark.parametrize("name", sorted(CHILDREN))
def test_a_server_forks_what_the_package_starts(name):
    assert forking.server_for(["-m", name, "folder"]) == forking.TRAINING


@pytest.mark.parametrize("kind", fork_server._IMPORTED)
def test_what_a_server_imports_is_there(kind):
    assert [name for name in fork_server._IMPORTED[kind] if find_spec(name) is None] == []
