"""Rebuild a study's database from its journal; the old database is kept beside it.

Of a file that several workers share, what is readable counts as well: workers on other hosts have
journals of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import optuna

from autotune.configuration.constraints import THROUGHPUT
from autotune.storage.database import existing, file_of, is_shared, storage_errors
from autotune.storage.journal import Journal
from autotune.storage.shared_file import copy_readable
from autotune.study.journal_sync import complete_journal, sync_journal
from autotune.study.opening import created
from autotune.study.revocations import rebuild
from autotune.values.errors import StorageError

# Suffixes of the files that SQLite may keep beside a database, and of the database itself.
_COMPANIONS = ("", "-journal", "-wal", "-shm")


@dataclass(frozen=True, slots=True)
class Repaired:
    """The result of a repair."""

    database: Path
    trials: int
    """Trials in the new database."""
    set_aside: int
    """Lines of the journal that were not readable."""
    backup: Path | None
    """Path of the old database; None if there was none."""


def repair(folder: Path, storage: str) -> Repaired:
    """Rebuild a file from `folder`/results.jsonl; the caller must keep other processes away.

    Side effects: renames the old database; moves unreadable lines of the journal to
    results.jsonl.torn; adds to the journal what only the old database has.

    Args:
        folder: folder of the study.
        storage: URL of an SQLite file or a shared file.

    Raises:
        StorageError: there is no journal, it has no trial, or a newer autotune wrote it. The
            database is unchanged.
    """
    journal = Journal(folder)
    if not journal.path.exists():
        raise StorageError(
            f"{journal.path} does not exist, so nothing can be made from it. Name the study whose "
            "folder has one, and with --storage the database, where that lies elsewhere."
        )
    database = file_of(storage)
    assert database is not None, "only files are rebuilt"
    database = database.resolve()
    beside = database.with_name(f"{database.name}.rebuilt")
    url = _url_like(storage, beside)
    with storage_errors(url):
        set_aside = journal.mend()
        with _readable(storage, database) as readable:
            _take_from(readable, journal)
        set_aside += journal.mend()  # what the database has may not fit the journal
        with journal.reading() as lines:
            if not any(line.record.kind == "trial" for line in lines):
                raise StorageError(
                    f"{journal.path} holds no finished trial; {database} is unchanged."
                )
            beside.unlink(missing_ok=True)
            trials = 0
            for name in dict.fromkeys(line.study for line in lines):
                stored = created(name, url, THROUGHPUT)
                trials += sync_journal(stored, journal, lines)
                rebuild(stored)
                stored.close()
        backup = _put_aside(database)
        beside.replace(database)
    return Repaired(database, trials, set_aside, backup)


def _url_like(storage: str, file: Path) -> str:
    return f"{'journal' if is_shared(storage) else 'sqlite'}:///{file}"


@contextmanager
def _readable(storage: str, database: Path) -> Iterator[str]:
    """Give the URL of the old database; of a shared file, that of a copy as far as it is readable.

    Raises:
        OSError: the copy cannot be written.
    """
    if not is_shared(storage) or not database.exists():
        yield _url_like(storage, database)
        return
    copy = database.with_name(f"{database.name}.readable")
    try:
        copy_readable(database, copy)
        yield _url_like(storage, copy)
    finally:
        copy.unlink(missing_ok=True)


def _take_from(url: str, journal: Journal) -> None:
    """Add to the journal what only the old database has, as far as that can be read.

    Raises:
        OSError: the journal cannot be written.
    """
    database = file_of(url)
    if database is None or not database.exists():
        return
    with journal.reading() as lines:
        names = [*dict.fromkeys(line.study for line in lines)]
    for name in names or _only_study(url):
        try:
            study = optuna.load_study(study_name=name, storage=existing(url))
            complete_journal(study, journal, lines, skip_unreadable=True)
        except OSError:
            raise
        except Exception:  # noqa: S112  a damaged database may raise anything
            continue


def _only_study(url: str) -> list[str]:
    """Return the name of the study of a database that has a single one; else nothing."""
    try:
        names = optuna.get_all_study_names(existing(url))
    except Exception:  # a damaged database may raise anything
        return []
    return names if len(names) == 1 else []


def _put_aside(database: Path) -> Path | None:
    """Rename a database to the first free name, so that nothing is overwritten."""
    if not database.exists():
        return None
    number = 1
    while database.with_name(f"{database.name}.bak-{number}").exists():
        number += 1
    backup = database.with_name(f"{database.name}.bak-{number}")
    for companion in _COMPANIONS:
        file = database.with_name(database.name + companion)
        if file.exists():
            file.rename(backup.with_name(backup.name + companion))
    return backup
