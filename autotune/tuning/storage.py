"""Where studies are stored: what a storage URL may be, and what databases raise as messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import optuna
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from autotune.errors import StorageError, UsageError


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
    except ArgumentError:
        raise UsageError(
            f"--storage {storage!r} is not a storage URL; write sqlite:///study.db or "
            "postgresql+psycopg://user@host/database."
        ) from None


def masked(storage: str | None) -> str:
    """A storage URL without its password."""
    if storage is None:
        return "in memory"
    return make_url(storage).render_as_string(hide_password=True)


def refuse(storage: str | None, error: Exception) -> NoReturn:
    """Say that a storage cannot be used, and why.

    Raises:
        StorageError: always.
    """
    cause = str(error.__cause__ or error).splitlines()[0]
    raise StorageError(
        f"the storage {masked(storage)} cannot be used: {cause}. "
        "Check that it exists, is writable and is not held by another process."
    ) from error
