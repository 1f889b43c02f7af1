"""Where studies are stored: what a storage URL may be, and what databases raise as messages."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import optuna
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from autotune.errors import StorageError, UsageError
from autotune.text import size, without_passwords


@contextmanager
def storage_errors(storage: str | None) -> Iterator[None]:
    """Turns what databases raise into a message with what to do."""
    try:
        yield
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        refuse(storage, error)
    except OSError as error:
        raise StorageError(
            f"{error.filename or masked(storage)}: {error.strerror or error}. "
            "Free space or permissions there; the same command continues."
        ) from error


def check_storage(storage: str | None) -> None:
    """Refuse what is no storage URL, before anything is measured.

    Raises:
        UsageError: it is none.
    """
    if storage is None:
        return
    try:
        make_url(storage)
    except (ArgumentError, ValueError):  # ValueError: a port that is no number
        # What cannot be read may hold a password wherever it likes.
        shown = re.sub(r":.*@", ":***@", storage, flags=re.DOTALL)
        raise UsageError(
            f"--storage {shown!r} is not a storage URL; write sqlite:///study.db or "
            "postgresql+psycopg://user@host/database."
        ) from None


def masked(storage: str | None) -> str:
    """A storage URL without its password."""
    if storage is None:
        return "in memory"
    return without_passwords(make_url(storage).render_as_string(hide_password=True))


def _room(storage: str | None) -> str:
    """What is free where an SQLite file lies, which explains most of what its disk refuses."""
    database = make_url(storage).database if storage and storage.startswith("sqlite:") else None
    if not database:
        return ""
    with suppress(OSError):
        return f" ({size(shutil.disk_usage(Path(database).parent).free)} free there)"
    return ""


def refuse(storage: str | None, error: Exception) -> NoReturn:
    """Say that a storage cannot be used, and why.

    Raises:
        StorageError: always.
    """
    lines = str(error.__cause__ or error).splitlines() or [type(error).__name__]
    raise StorageError(
        f"the storage {masked(storage)} cannot be used: {without_passwords(lines[0])}"
        f"{_room(storage)}. "
        "Check that it exists, is writable and is not held by another process."
    ) from error
