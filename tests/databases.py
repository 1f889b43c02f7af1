"""Databases of studies that take little time: copied while empty, and not synchronised."""

import shutil
import sqlite3
import tempfile
from pathlib import Path

import optuna

from autotune.study import storage

SHIPPED = storage._survive_power_cuts
"""Function that is called on each connection outside of tests."""


def empty_database(path: Path) -> None:
    """Make a database without a study; creating Optuna's tables takes long."""
    first = Path(tempfile.gettempdir(), "empty.db")
    if not first.exists():
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder, first.name)
            optuna.storages.RDBStorage(f"sqlite:///{made}").engine.dispose()
            made.replace(first)  # at once, beside another process that makes it
    shutil.copyfile(first, path)


def leave_writing_to_the_kernel() -> None:
    """Let no commit of this process wait for the disk; a kill loses nothing by that."""
    storage._survive_power_cuts = _off


def _off(connection: sqlite3.Connection, _: object) -> None:
    connection.execute("PRAGMA synchronous=OFF")
