"""Runs of the suite: what failed is run once more and told, and more than three are a failure."""

import pytest

import run_tests

FAILED = '<testcase classname="tests.test_it" name="test_{}"><failure/></testcase>'


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run as many tests that fail beside others, and again with this exit code; what is told."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build").mkdir()

    def main(failures, again=0):
        def pytest_run(report, *arguments):
            report.write_text(
                f"<testsuite>{''.join(map(FAILED.format, range(failures)))}</testsuite>"
            )
            return again if "--last-failed" in arguments else int(failures > 0)

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
