"""Run tests, then what failed once more, alone: `python tests/run_tests.py NAME [ARGUMENTS]`.

NAME is that of the reports, build/NAME.xml and build/NAME-again.xml. A text beside each has the
slowest tests and the seconds of each folder. ARGUMENTS are pytest's. Many tests start real
processes and time them, so a busy machine may fail one. It is told which tests needed a second run,
and more than three are a failure.
"""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree as Xml

import durations

MOST_AGAIN = 3
_FAILED, _NOTHING_COLLECTED = 1, 5
# Two at a time, a file each: most of a test is waiting for a process that it started.
_BESIDE_OTHERS = ("--numprocesses=2", "--dist=loadfile", "--no-loadscope-reorder")
_ALONE = ("--last-failed", "--last-failed-no-failures=none")


def main() -> int:
    """Return the exit code."""
    name, *arguments = sys.argv[1:]
    report, again_report = (Path("build", f"{name}{suffix}.xml") for suffix in ("", "-again"))
    for old in (report, again_report):
        old.unlink(missing_ok=True)
    code = _run(report, *_BESIDE_OTHERS, *arguments)
    if code != _FAILED:
        return code
    again = failed(report)
    print(f"\n{len(again)} failed beside other tests:", *again, sep="\n  ", flush=True)
    if len(again) > MOST_AGAIN:
        print(f"More than {MOST_AGAIN} are not run again.")
        return code
    code = _run(again_report, *_ALONE, *arguments)
    if code:
        return _FAILED if code == _NOTHING_COLLECTED else code
    print(f"{len(again)} of at most {MOST_AGAIN} needed a second run.")
    if lost := sorted(set(again) - passed(again_report)):
        print("They did not pass in it:", *lost, sep="\n  ")
        return _FAILED
    return 0


def _run(report: Path, *arguments: str) -> int:
    command = [sys.executable, "-m", "pytest", f"--junitxml={report}", *arguments]
    code = subprocess.run(command, check=False).returncode
    if report.exists():
        report.with_suffix(".txt").write_text(durations.summary(report), encoding="utf-8")
    return code


def failed(report: Path) -> list[str]:
    """Return the tests that failed in a run, or before or after it."""
    return sorted(name for name, ends in _ends(report).items() if ends & {"failure", "error"})


def passed(report: Path) -> set[str]:
    """Return the tests that ran and passed."""
    faults = {"failure", "error", "skipped"}
    return {name for name, ends in _ends(report).items() if not ends & faults}


def _ends(report: Path) -> Mapping[str, set[str]]:
    """Return how each test ended, as the tags that its cases hold."""
    found: dict[str, set[str]] = {}
    for case in Xml.parse(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        found.setdefault(name, set()).update(part.tag for part in case)
    return found


if __name__ == "__main__":
    sys.exit(main())
