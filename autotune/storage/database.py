"""The storage of studies: check storage URLs, open databases, turn their errors into messages."""

from __future__ import annotations

import errno
import re
import shlex
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import optuna
import psutil
from optuna.storages import BaseStorage, RDBStorage
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from autotune.process.common.interpreter import check_installed
from autotune.storage import shared_file
from autotune.storage.heartbeat import end_dead_connections
from autotune.values.errors import StorageError, UsageError
from autotune.values.text import size, without_passwords

_BACKENDS = ("sqlite", "postgresql", "journal")
_KINDS = (
    "an SQLite file, sqlite:///study.db, for one search; a file that several workers share, "
    "journal:///study.log; or a PostgreSQL server, postgresql://user@host/database"
)
PATIENCE_SECONDS = 20.0
"""Seconds to wait for another program that locks an SQLite file, such as a dashboard."""
# SQLite's locks do not hold on these, and a write may be lost.
_NETWORK = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "lustre", "gpfs", "beegfs", "glusterfs")
_NETWORK_BY_FUSE = ("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone")
# A word in a database's error to the advice.
_ADVICE = {
    "locked": "Another program holds it, such as a backup. Wait for it or end it.",
    "malformed": "{repair} rebuilds it from results.jsonl, and keeps this file.",
    "not a database": "{repair} rebuilds it from results.jsonl, and keeps this file.",
    "its line": "{repair} makes it anew from its readable lines and results.jsonl, and keeps this.",
    "was replaced": "The same command continues with the new one.",
    "no such table": "It was deleted while it was in use. The same command rebuilds it.",
    "full": "Free some space.",
    "readonly": "It cannot be written: check its permissions and those of its folder.",
    "disk I/O": "The disk fails, or the file was taken away.",
}


@contextmanager
def storage_errors(storage: str | None) -> Iterator[None]:
    """Turn errors of databases and files in this block into a message with advice.

    Raises:
        StorageError: the block raised such an error.
    """
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, optuna.exceptions.StorageInternalError) as error:
        refuse(storage, error)
    except OSError as error:
        raise StorageError(
            f"{error.filename or masked(storage)}: {error.strerror or error}"
            f"{_room(storage) if error.errno == errno.ENOSPC else ''}. "
            "Free space or permissions there; the same command continues."
        ) from error


def check_storage(storage: str | None) -> None:
    """Check that a storage can be opened here: `check_url`, and the driver is installed.

    Raises:
        UsageError: see `check_url`, or psycopg is missing.
    """
    check_url(storage)
    if is_server(storage) and with_driver(storage or "").startswith("postgresql+psycopg:"):
        check_installed("psycopg", f"--storage {masked(storage)}")


def check_url(storage: str | None) -> None:
    """Check that a storage is the URL of an SQLite file, a shared file or PostgreSQL, or None.

    Other databases are refused, because writers of one study would not see each other.

    Raises:
        UsageError: it is something else.
        StorageError: it names a shared file that cannot be one.
    """
    if storage is None:
        return
    try:
        url = make_url(storage)
        backend = url.get_backend_name()
    except (ArgumentError, ValueError):  # ValueError: a port that is no number
        # A malformed URL may contain a password anywhere.
        shown = re.sub(r":.*@", ":***@", storage, flags=re.DOTALL)
        raise UsageError(
            f"--storage {shown!r} is not a storage URL; write sqlite:///study.db, "
            "journal:///study.log or postgresql://user@host/database."
        ) from None
    if backend not in _BACKENDS:
        raise UsageError(
            f"--storage {masked(storage)} names {backend}, in which two searches of one study "
            f"would not see each other. Give {_KINDS}."
        )
    if backend == "journal" and (url.host or url.query or not url.database):
        raise UsageError(
            f"--storage {masked(storage)} names no file. Write journal:///study.log, or "
            "journal:////absolute/path/study.log with four slashes; hosts that share it see it "
            "under such a path each."
        )
    if (file := shared_file_of(storage)) is not None:
        with storage_errors(storage):
            shared_file.check_shared_file(file)


def is_server(storage: str | None) -> bool:
    """Return True for a PostgreSQL server."""
    return storage is not None and make_url(storage).get_backend_name() == "postgresql"


def is_shared(storage: str | None) -> bool:
    """Return True if several processes may write, on a server or in a shared file."""
    return is_server(storage) or shared_file_of(storage) is not None


def with_driver(storage: str) -> str:
    """Return the URL, with psycopg as the driver if it names PostgreSQL and no driver."""
    url = make_url(storage)
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    return url.render_as_string(hide_password=False)


def database_of(storage: str | None) -> Path | None:
    """Return the file of an SQLite storage; None for other storages and for memory."""
    return _file_of(storage, "sqlite")


def shared_file_of(storage: str | None) -> Path | None:
    """Return the file that several processes share; None for other storages."""
    return _file_of(storage, "journal")


def file_of(storage: str | None) -> Path | None:
    """Return the file of a storage of either kind; None for a server and for memory."""
    return database_of(storage) or shared_file_of(storage)


def _file_of(storage: str | None, backend: str) -> Path | None:
    if storage is None or make_url(storage).get_backend_name() != backend:
        return None
    name = make_url(storage).database
    return None if not name or name == ":memory:" else Path(name)


def connected(storage: str | None) -> BaseStorage | None:
    """Open Optuna's storage for a URL; return None, Optuna's word for memory, without one.

    Raises:
        ImportError, ValueError: the driver is not installed.
        SQLAlchemyError, StorageInternalError, StorageError, OSError: it cannot be used.
    """
    if storage is None:
        return None
    if (file := shared_file_of(storage)) is not None:
        return shared_file.opened(file)
    opened = RDBStorage(with_driver(storage), _engine(storage))
    if is_server(storage):
        end_dead_connections(opened.engine)
        opened.remove_session()
        opened.engine.dispose()  # the first connections lack the setting
    return opened


def existing(storage: str) -> BaseStorage:
    """Open an existing storage of Optuna's; no table and no shared file is created.

    Raises:
        StorageError: it cannot be reached or used.
    """
    with storage_errors(storage):
        if (file := shared_file_of(storage)) is not None:
            return shared_file.opened_for_reading(file)
        try:
            return RDBStorage(with_driver(storage), _engine(storage), skip_table_creation=True)
        except (ImportError, RuntimeError, ValueError) as error:  # no driver, or another schema
            refuse(storage, error)


def disconnect(storage: BaseStorage) -> None:
    """Close all connections to a storage; it must not be used any more."""
    storage.remove_session()
    if isinstance(storage, RDBStorage):
        storage.engine.dispose()


def _engine(storage: str) -> dict[str, Any]:
    """Return SQLAlchemy's arguments for connecting."""
    if database_of(storage) is not None:
        return {"connect_args": {"timeout": PATIENCE_SECONDS}}
    return {"pool_pre_ping": True}


def check_still_there(storage: str | None) -> None:
    """Check that the file of a study exists; writes to a deleted file that is open do not fail.

    Raises:
        StorageError: it was deleted.
    """
    path = file_of(storage)
    if path is not None and not path.exists():
        raise StorageError(
            f"{path} was deleted while the search ran. Finished trials are in results.jsonl in the "
            "study's folder: the same command makes the study from them and continues."
        )


def network_file_system(path: Path) -> str | None:
    """Return the type of the network file system that a path lies on; None for a local one."""
    mounts = {Path(p.mountpoint): p.fstype for p in psutil.disk_partitions(all=True)}
    whole = path.resolve()
    kind = next((mounts[one] for one in (whole, *whole.parents) if one in mounts), "")
    return kind if kind.startswith((*_NETWORK, *_NETWORK_BY_FUSE)) else None


def masked(storage: str | None) -> str:
    """Return a storage URL without its password; "in memory" for None."""
    if storage is None:
        return "in memory"
    return without_passwords(make_url(storage).render_as_string(hide_password=True))


def _room(storage: str | None) -> str:
    """Return the free space beside a storage's file as text for an error; "" without a file."""
    database = file_of(storage)
    if database is None:
        return ""
    with suppress(OSError):
        return f" ({size(shutil.disk_usage(database.parent).free)} free there)"
    return ""


def _repair_command(storage: str | None) -> str:
    """Return the command that rebuilds a file; results.jsonl may lie in another folder."""
    database, url = file_of(storage), shlex.quote(masked(storage))
    if database is not None and database.with_name("results.jsonl").exists():
        return f"`autotune repair {url}`"
    return f"`autotune repair NAME --storage {url}`, with the study's NAME,"


def refuse(storage: str | None, error: Exception) -> NoReturn:
    """Raise an error that says that a storage cannot be used, why, and what helps.

    Raises:
        StorageError: always.
    """
    lines = str(error.__cause__ or error).splitlines() or [type(error).__name__]
    advice = [text for word, text in _ADVICE.items() if word in lines[0]]
    helps = advice[0] if advice else "Check that it exists and can be reached and written."
    helps = helps.replace("{repair}", _repair_command(storage))
    raise StorageError(
        f"the storage {masked(storage)} cannot be used: {without_passwords(lines[0])}"
        f"{_room(storage)}. "
        f"{helps} Finished trials are in results.jsonl in the study's folder as well."
    ) from error
