"""Where the time of the suite goes, and the order in which its files are run.

`python tests/durations.py build/*.xml` writes the seconds of each file, as these runs took them, to
durations.json. Longest first: at the end of a run no process is left alone with a long file.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pytest

_STORED = Path(__file__).with_suffix(".json")
_LEAST_STORED = 3.0
# These hold a lock against each other, so that one process would wait for another's test.
_ONE_AT_A_TIME = ("test_device_processes.py", "test_worker_processes.py")


def scheduler(config: pytest.Config, log: Any) -> Any:
    """Return a scheduler that gives whole files to processes, those with a lock to the same one."""
    from xdist.scheduler import LoadFileScheduling  # beside a GPU it may be missing

    class OneAtATime(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group_of(nodeid)

    return OneAtATime(config, log) if config.getoption("dist") == "loadfile" else None


def longest_first(items: list[pytest.Item]) -> None:
    """Order tests by the stored seconds of their files; new files are guessed by their tier."""
    stored = json.loads(_STORED.read_text(encoding="utf-8"))
    seconds: Counter[str] = Counter()
    for item in items:
        file = _group_of(item.nodeid)
        seconds[file] += 2.0 if item.get_closest_marker("real") else 0.1
    for file in seconds.keys() & stored.keys():
        seconds[file] = stored[file]
    items.sort(key=lambda item: -seconds[_group_of(item.nodeid)])


def tell(terminal: pytest.TerminalReporter) -> None:
    """Print the seconds of each folder, over all processes."""
    files = _by_file(
        (report.nodeid, report.duration)
        for reports in terminal.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport)
    )
    folders: Counter[str] = Counter()
    for file, seconds in files.items():
        folders[str(Path(file).parent)] += seconds
    if folders:
        terminal.section("seconds by folder")
    for folder, seconds in folders.most_common():
        terminal.write_line(f"{seconds:8.1f} {folder}")


def _group_of(nodeid: str) -> str:
    """Return what runs in one process: a file, or all that hold a common lock."""
    file = _file_of(nodeid)
    return "locked" if file.endswith(_ONE_AT_A_TIME) else file


def _file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _by_file(tests: Iterable[tuple[str, float]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for nodeid, seconds in tests:
        found[_file_of(nodeid)] += seconds
    return found


def _stored(reports: Iterable[str]) -> Mapping[str, float]:
    cases = [case for report in reports for case in Xml.parse(report).iter("testcase")]
    names = ((str(case.get("classname")), float(case.get("time") or 0)) for case in cases)
    files = _by_file((_group_of(f"{name.replace('.', '/')}.py"), time) for name, time in names)
    return {file: round(time) for file, time in sorted(files.items()) if time >= _LEAST_STORED}


if __name__ == "__main__":
    _STORED.write_text(json.dumps(_stored(sys.argv[1:]), indent=1) + "\n", encoding="utf-8")
