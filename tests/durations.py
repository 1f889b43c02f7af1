"""Where the time of the suite goes, and the order in which its files are run.

`python tests/durations.py build/*.xml` writes the seconds of each file, as these runs took them, to
durations.json. Longest first: at the end of a run no process is left alone with a long file.
"""

from __future__ import annotations

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
_ONE_AT_A_TIME = (
    "test_device_processes.py",
    "test_script_devices.py",
    "test_worker_of_a_script.py",
    "test_worker_processes.py",
)


def scheduler(config: pytest.Config, log: Any) -> Any:
    """Return a scheduler that gives whole files to processes, those with a lock to the same one."""
    from xdist.scheduler import LoadFileScheduling  # beside a GPU it may be missing

    class OneAtATime(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = _file_of(nodeid)
            return "locked" if Path(file).name in _ONE_AT_A_TIME else file

    return OneAtATime(config, log) if config.getoption("dist") == "loadfile" else None


def longest_first(items: list[pytest.Item]) -> None:
    """Order tests by the stored seconds of their files."""
    stored = json.loads(_STORED.read_text(encoding="utf-8"))
    locked = sum(seconds for file, seconds in stored.items() if file.endswith(_ONE_AT_A_TIME))

    def key(item: pytest.Item) -> float:
        file = _file_of(item.nodeid)
        return -(locked if file.endswith(_ONE_AT_A_TIME) else stored.get(file, 0.0))

    items.sort(key=key)


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
    files = _by_file((f"{name.replace('.', '/')}.py", seconds) for name, seconds in names)
    return {file: round(time) for file, time in sorted(files.items()) if time >= _LEAST_STORED}


if __name__ == "__main__":
    _STORED.write_text(json.dumps(_stored(sys.argv[1:]), indent=1) + "\n", encoding="utf-8")
