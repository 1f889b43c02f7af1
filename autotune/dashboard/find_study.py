"""Resolve the argument STUDY to a storage and the folder beside it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from autotune.configuration.flags import folder_name
from autotune.storage.database import masked
from autotune.values.errors import StorageError, UsageError
from autotune.values.suggest import did_you_mean

_SQLITE = b"SQLite format 3\x00"


@dataclass(frozen=True, slots=True)
class StudyPlace:
    """A storage, and the folder of its study."""

    storage: str
    """URL, password included."""
    folder: Path | None
    """Folder of an SQLite file, with trials and best.yaml; None for a database server."""

    @property
    def artifacts(self) -> Path:
        """Return the folder of the artifacts' copies on this host."""
        return Path("studies", ".artifacts") if self.folder is None else self.folder / "artifacts"

    @property
    def shown(self) -> str:
        """Return the storage's URL without its password."""
        return masked(self.storage)


def find_study(source: str) -> StudyPlace:
    """Return the place of a study, from its name, folder, database or storage URL.

    Raises:
        UsageError: there is no such study.
        StorageError: the path is a file, but no database.
    """
    if "://" in source:
        url = _parsed(source)
        if url.get_backend_name() != "sqlite":
            return StudyPlace(source, None)
        return StudyPlace(source, _database(Path(url.database or ""), source).parent)
    own = Path("studies", folder_name(source), "study.db")
    path = Path(source)
    if own.is_file():
        path = own
    elif path.is_dir():
        path /= "study.db"
    path = _database(path, source)
    return StudyPlace(f"sqlite:///{path}", path.parent)


def _parsed(source: str) -> URL:
    try:
        return make_url(source)
    except (ArgumentError, ValueError):  # ValueError: the port is no number
        shown = re.sub(r"//.*@", "//***@", source)
        raise UsageError(
            f"{shown!r} is not a storage URL; write sqlite:///study.db or "
            "postgresql+psycopg://user@host/database."
        ) from None


def _database(path: Path, source: str) -> Path:
    """Return the absolute path of an existing SQLite file."""
    if not path.is_file():
        names = sorted(file.parent.name for file in Path("studies").glob("*/study.db"))
        known = f" Studies here: {', '.join(names)}." if names else " `autotune search` makes one."
        raise UsageError(
            f"{source!r} is no study: there is no file {path}.{did_you_mean(source, names)} Name a "
            f"study of this folder, the folder or database of one, or a storage URL.{known}"
        )
    try:
        with path.open("rb") as file:
            start = file.read(len(_SQLITE))
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}.") from error
    if start != _SQLITE:
        raise StorageError(
            f"{path} is no SQLite database. Name the folder of a study, or its study.db."
        )
    return path.resolve()
