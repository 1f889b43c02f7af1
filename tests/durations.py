"""Where the time of the suite goes, and the order in which its files are run.

`python tests/durations.py build/*.xml` writes the seconds of each file, as these runs took them, to
durations.json. Longest first: at the end of a run no process is left alone with a long file.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pytest

_STORED = Path(__file__).with_suffix(".json")
_LEAST_STORED = 3.0
_SLOWEST = 40
# These hold a lock against each other, so that one process would wait for another's test.
_ONE_AT_A_TIME = (
    "test_device_processes.py",
    "test_script_devices.py",
    "test_worker_processes.py",
)


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


def summary(report: Path) -> str:
    """Return the slowest tests of a run and the seconds of each folder, over all processes."""
    tests = list(_tests_of([report]))
    slowest = _summed(tests, lambda nodeid: nodeid).most_common(_SLOWEST)
    folders = _summed(tests, lambda nodeid: str(Path(_file_of(nodeid)).parent)).most_common()
    parts = (f"seconds of the {len(slowest)} slowest tests", slowest), ("of each folder", folders)
    return "\n".join(
        f"{title}\n" + "".join(f"{seconds:8.1f} {name}\n" for name, seconds in rows)
        for title, rows in parts
    )


def _group_of(nodeid: str) -> str:
    """Return what runs in one process: a file, or all that hold a common lock."""
    file = _file_of(nodeid)
    return "locked" if file.endswith(_ONE_AT_A_TIME) else file


def _file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _tests_of(reports: Iterable[Path]) -> Iterator[tuple[str, float]]:
    """Yield each test of these runs with its seconds."""
    for report in reports:
        for case in Xml.parse(report).iter("testcase"):
            file = str(case.get("classname")).replace(".", "/")
            yield f"{file}.py::{case.get('name')}", float(case.get("time") or 0)


def _summed(tests: Iterable[tuple[str, float]], key: Callable[[str], str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for nodeid, seconds in tests:
        found[key(nodeid)] += seconds
    return found


def _stored(reports: Iterable[Path]) -> Mapping[str, float]:
    files = _summed(_tests_of(reports), _group_of)
    return {file: round(time) for file, time in sorted(files.items()) if time >= _LEAST_STORED}


if __name__ == "__main__":
    found = _stored(map(Path, sys.argv[1:]))
    _STORED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
