"""Records the rows of docs/reliability.md whose tests ran and passed: `pytest --covered FILE`.

Each run adds its rows to FILE, so that a suite may take several. `python tests/covering.py check
FILE` compares them with the page, and `check-long` with what only tests marked `long` show.
"""

from __future__ import annotations

from pathlib import Path

import pytest

_ROWS = "covers"


def add_option(parser: pytest.Parser) -> None:
    """Add the option that names the file."""
    text = "add the rows of docs/reliability.md whose tests passed to this file"
    parser.addoption("--covered", type=Path, metavar="FILE", help=text)


def record(config: pytest.Config) -> None:
    """Record the rows of this run, if it is asked for."""
    if (file := config.getoption("--covered")) is not None:
        config.pluginmanager.register(_Recorder(file, has_file=not hasattr(config, "workerinput")))


class _Recorder:
    """A plugin that tells rows with each report: of xdist's processes, only the first writes."""

    def __init__(self, file: Path, has_file: bool) -> None:
        self._file = file.absolute()
        self._has_file = has_file
        self._passed: set[str] = set()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            rows = {row for mark in item.iter_markers("covers") for row in mark.args}
            item.user_properties += [(_ROWS, row) for row in sorted(rows)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._passed |= {str(value) for name, value in report.user_properties if name == _ROWS}

    def pytest_sessionfinish(self) -> None:
        if self._has_file:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8") as file:
                file.writelines(f"{row}\n" for row in sorted(self._passed))
