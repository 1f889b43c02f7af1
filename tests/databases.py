"""Empty databases of studies. They are copied, because creating Optuna's tables takes long."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import optuna


def empty_database(path: Path) -> None:
    """Make a database without a study."""
    first = Path(tempfile.gettempdir(), "empty.db")
    if not first.exists():
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder, first.name)
            optuna.storages.RDBStorage(f"sqlite:///{made}").engine.dispose()
            made.replace(first)  # at once, beside another process that makes it
    shutil.copyfile(first, path)
