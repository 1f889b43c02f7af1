"""Storages of studies: URLs, opening, the lock of a folder, and errors as messages.

A study lies in an SQLite file, with one writing process on one host, or on a PostgreSQL or MySQL
server, where Optuna's heartbeats show which processes live. Optuna's `RDBStorage` serves all.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shlex
import shutil
import sqlite3
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import optuna
import psutil
from optuna.storages import BaseStorage, RDBStorage
from optuna.trial import FrozenTrial
from sqlalchemy import TEXT, Engine, inspect, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    ProgrammingError,
    SQLAlchemyError,
)

from autotune.process.common.interpreter import check_installed
from autotune.process.common.trial_folder import make_private
from autotune.values.errors import StorageError, UsageError
from autotune.values.text import size, without_passwords

_KINDS = (
    "an SQLite file, sqlite:///study.db, or for several hosts a server, "
    "postgresql://user@host/database or mysql://user@host/database"
)
_DRIVERS = {"postgresql": "psycopg", "mysql": "pymysql"}
"""Driver of each kind of server, used where the URL names none."""
PATIENCE_SECONDS = 20.0
"""Seconds to wait for another program that locks an SQLite file, such as a dashboard."""
BEAT_SECONDS, GRACE_SECONDS = 30, 120
"""Seconds between two heartbeats of a running trial on a server, and those after which a trial
without one is taken from its process."""
LOCK_FILE = ".autotune-lock"
"""Name of the lock file; distinct, since the folder may contain other files than a study's."""
_LONGEST_PID = 20
_TABLE_ATTEMPTS, _TABLE_SECONDS = 5, 0.3
# MySQL's codes for a table, column or key that exists.
_EXISTS = re.compile(r"\((1050|1061|1062), ")
# SQLite's locks do not hold on these, and a write may be lost.
_NETWORK = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "lustre", "gpfs", "beegfs", "glusterfs")
_NETWORK_BY_FUSE = ("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone")
# A word in a database's error to the advice.
_ADVICE = {
    "locked": "Another program holds it, such as a backup. Wait for it or end it.",
    "malformed": "{restore}",
    "not a database": "{restore}",
    "no such table": "It was deleted while it was in use. {restore}",
    "full": "Free some space.",
    "readonly": "It cannot be written: check its permissions and those of its directory.",
    "disk I/O": "The disk failed, or the file was removed.",
}


@contextmanager
def storage_errors(storage: str | None) -> Iterator[None]:
    """Turn errors of databases and files in this block into a StorageError with advice."""
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
    """Check that a storage is None or the URL of an SQLite file or of a server, with its driver.

    Raises:
        UsageError: it is something else, or the driver is missing.
    """
    if storage is None:
        return
    try:
        backend = make_url(storage).get_backend_name()
    except (ArgumentError, ValueError):  # ValueError: a port that is no number
        # A malformed URL may contain a password anywhere.
        shown = re.sub(r":.*@", ":***@", storage, flags=re.DOTALL)
        raise UsageError(
            f"--storage {shown!r} is not a storage URL; write sqlite:///study.db, "
            "postgresql://user@host/database or mysql://user@host/database."
        ) from None
    if backend not in ("sqlite", *_DRIVERS):
        raise UsageError(
            f"--storage {masked(storage)} names {backend}, which is untested. Give {_KINDS}."
        )
    driver = make_url(_with_driver(storage)).drivername.partition("+")[2]
    if driver in _DRIVERS.values():
        check_installed(driver, f"--storage {masked(storage)}")


def is_server(storage: str | None) -> bool:
    """Return True for a server, where several processes may write."""
    return storage is not None and make_url(storage).get_backend_name() in _DRIVERS


def file_of(storage: str | None) -> Path | None:
    """Return the file of an SQLite storage; None for a server and for memory."""
    if storage is None or is_server(storage):
        return None
    name = make_url(storage).database
    return None if not name or name == ":memory:" else Path(name)


def backup_of(file: Path) -> Path:
    """Return the path of the copy of an SQLite file, made when a search opens it."""
    return file.with_name(f"{file.name}.bak")


def masked(storage: str | None) -> str:
    """Return a storage URL without its password; "in memory" for None."""
    if storage is None:
        return "in memory"
    return without_passwords(make_url(storage).render_as_string(hide_password=True))


def _with_driver(storage: str) -> str:
    """Return the URL, with our driver if it names a server and no driver."""
    url = make_url(storage)
    if url.drivername in _DRIVERS:
        url = url.set(drivername=f"{url.drivername}+{_DRIVERS[url.drivername]}")
    return url.render_as_string(hide_password=False)


def opened(
    storage: str, on_stale: Callable[[optuna.Study, FrozenTrial], None] | None = None
) -> RDBStorage:
    """Open the storage, and create Optuna's tables where they are missing.

    On a server, `on_stale` is called with each trial that was taken from a dead process.

    Raises:
        SQLAlchemyError, StorageInternalError, StorageError: it cannot be used.
    """
    file = file_of(storage)
    if file is not None and not file.exists() and backup_of(file).exists():
        raise StorageError(f"{file} is missing. {_how_to_restore(storage)}")
    try:
        if not is_server(storage):
            return RDBStorage(storage, engine_arguments(storage))
        for _ in range(_TABLE_ATTEMPTS):
            try:
                return _on_server(storage, on_stale)
            except DBAPIError as error:
                # Another process that creates the tables at the same time makes this one fail.
                expected = isinstance(error, ProgrammingError | IntegrityError)
                if not (expected or _EXISTS.search(str(error))):
                    raise
            time.sleep(_TABLE_SECONDS)
        return _on_server(storage, on_stale)
    except (ImportError, RuntimeError, ValueError) as error:  # no driver, or another schema
        refuse(storage, error)


def _on_server(
    storage: str, on_stale: Callable[[optuna.Study, FrozenTrial], None] | None
) -> RDBStorage:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        opened = RDBStorage(
            _with_driver(storage),
            engine_arguments(storage),
            heartbeat_interval=BEAT_SECONDS,
            grace_period=GRACE_SECONDS,
            heartbeat_stale_trial_callback=on_stale,
        )
    if opened.engine.dialect.name == "mysql":
        _widen_attributes(opened.engine)
    return opened


def _widen_attributes(engine: Engine) -> None:
    """Let attributes be long: MySQL's own type for text holds 64 kB."""
    tables = inspect(engine)
    with engine.begin() as connection:
        for table in tables.get_table_names():
            for column in tables.get_columns(table) if table.endswith("_attributes") else ():
                name = column["name"]
                if isinstance(column["type"], TEXT):
                    connection.execute(text(f"ALTER TABLE {table} MODIFY {name} LONGTEXT"))


def existing(storage: str, kind: type[RDBStorage] = RDBStorage) -> RDBStorage:
    """Open an existing storage; no table is created.

    Raises:
        StorageError: it cannot be reached or used.
    """
    with storage_errors(storage):
        try:
            return kind(_with_driver(storage), engine_arguments(storage), skip_table_creation=True)
        except (ImportError, RuntimeError, ValueError) as error:
            refuse(storage, error)


def disconnect(storage: BaseStorage) -> None:
    """Close all connections to a storage; it must not be used any more."""
    storage.remove_session()
    if isinstance(storage, RDBStorage):
        storage.engine.dispose()


def engine_arguments(storage: str) -> dict[str, Any]:
    """Return SQLAlchemy's arguments for connecting."""
    if is_server(storage):  # a claim reads what others committed, which MySQL's default may hide
        return {"pool_pre_ping": True, "isolation_level": "READ COMMITTED"}
    return {
        "connect_args": {"timeout": PATIENCE_SECONDS},
        "pool_events": [(_survive_power_cuts, "connect")],
    }


def _survive_power_cuts(connection: sqlite3.Connection, _: object) -> None:
    """Sync the folder as well when a transaction ends; by default a power cut may undo it."""
    connection.execute("PRAGMA synchronous=EXTRA")


def back_up(storage: str) -> None:
    """Copy an SQLite file to its backup, which is replaced at once; others may read it meanwhile.

    Raises:
        OSError, sqlite3.Error: it cannot be copied.
    """
    if (file := file_of(storage)) is None:
        return

    def refuse_to_wait(status: int, *_: int) -> None:
        if status == sqlite3.SQLITE_BUSY:
            raise sqlite3.OperationalError("database is locked")

    new = file.with_name(f"{file.name}.bak.new")
    new.unlink(missing_ok=True)
    files = (sqlite3.connect(path, timeout=PATIENCE_SECONDS) for path in (file, new))
    with closing(next(files)) as one, closing(next(files)) as other:
        one.backup(other, progress=refuse_to_wait)
    new.replace(backup_of(file))


def check_still_there(storage: str | None) -> None:
    """Check that the file of a study exists; writes to a deleted file that is open do not fail."""
    path = file_of(storage)
    if path is not None and not path.exists():
        raise StorageError(
            f"{path} was deleted while the search ran. {_how_to_restore(storage)} The outcome of "
            "each trial of this run is in trials/ in the study's directory."
        )


def network_file_system(path: Path) -> str | None:
    """Return the type of the network file system that a path lies on; None for a local one."""
    mounts = {Path(p.mountpoint): p.fstype for p in psutil.disk_partitions(all=True)}
    whole = path.resolve()
    kind = next((mounts[one] for one in (whole, *whole.parents) if one in mounts), "")
    return kind if kind.startswith((*_NETWORK, *_NETWORK_BY_FUSE)) else None


def refuse(storage: str | None, error: Exception) -> NoReturn:
    """Raise an error that says that a storage cannot be used, why, and what helps."""
    lines = str(error.__cause__ or error).splitlines() or [type(error).__name__]
    file = file_of(storage)
    if "readonly" in lines[0] and file is not None and file.parent.is_dir():
        check_still_there(storage)  # it is SQLite's word for a file that was deleted, too
    advice = [text for word, text in _ADVICE.items() if word in lines[0]]
    helps = advice[0] if advice else "Check that it exists and can be reached and written."
    if "{restore}" in helps:
        helps = helps.replace("{restore}", _how_to_restore(storage))
    raise StorageError(
        f"the storage {masked(storage)} cannot be used: {without_passwords(lines[0])}"
        f"{_room(storage)}. {helps}"
    ) from error


def _how_to_restore(storage: str | None) -> str:
    """Return the command that puts a file's backup in its place, or how to start over."""
    file = file_of(storage)
    if file is None:
        return "Restore it from a backup of its server."
    if not backup_of(file).exists():
        anew = "the same command starts over."
        return f"There is no backup of it yet: {'move it away, and ' * file.exists()}{anew}"
    backup, journal, path = (
        shlex.quote(str(one)) for one in (backup_of(file), f"{file}-journal", file)
    )
    return (
        "Its backup has the study as the last search found it at its start: "
        f"`rm -f {journal}; cp {backup} {path}` restores it. To start over, remove both."
    )


def _room(storage: str | None) -> str:
    """Return the free space for a storage's file as text for an error; "" without a file."""
    database = file_of(storage)
    if database is None:
        return ""
    with suppress(OSError):
        return f" ({size(shutil.disk_usage(database.parent).free)} free there)"
    return ""


@contextmanager
def study_lock(folder: Path) -> Iterator[None]:
    """Lock the folder while the block runs; the kernel unlocks it if this process dies.

    Raises:
        StorageError: another process has the lock, or the folder cannot be written.
    """
    path = folder / LOCK_FILE
    try:
        make_private(folder)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise StorageError(
            f"{folder} cannot be used for the study: {error.strerror}. "
            "Work in a directory that you may write to."
        ) from error
    try:
        content = os.pread(descriptor, _LONGEST_PID, 0)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(
                f"the study in {folder} is in use by process "
                f"{content.decode(errors='replace') or 'unknown'}. "
                "Wait for it, or start another study with --study NAME."
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)
