"""Rebuild a study's database from its journal; the old database is kept beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import optuna

from autotune.storage.database import existing, storage_errors
from autotune.storage.journal import Journal
from autotune.study.journal_sync import complete_journal, sync_journal
from autotune.study.opening import created
from autotune.study.revocations import amend
from autotune.values.errors import StorageError
from autotune.values.objectives import OBJECTIVES

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


def repair(folder: Path, database: Path) -> Repaired:
    """Rebuild `database` from `folder`/results.jsonl; the caller must lock the database's folder.

    Side effects: renames the old database; moves unreadable lines of the journal to
    results.jsonl.torn; adds to the journal what only the old database has.

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
    beside = database.with_name(f"{database.name}.rebuilt")
    url = f"sqlite:///{beside}"
    with storage_errors(url):
        set_aside = journal.mend()
        _take_from(database, journal)
        set_aside += journal.mend()  # what the database has may not fit the journal
        with journal.reading() as lines:
            if not any(line.record.kind == "trial" for line in lines):
                raise StorageError(
                    f"{journal.path} holds no finished trial; {database} is unchanged."
                )
            beside.unlink(missing_ok=True)
            trials = 0
            for name in dict.fromkeys(line.study for line in lines):
                stored = created(name, url, OBJECTIVES["throughput"])
                trials += sync_journal(stored, journal, lines)
                amend(stored.study)
        backup = _put_aside(database)
        beside.replace(database)
    return Repaired(database, trials, set_aside, backup)


def _take_from(database: Path, journal: Journal) -> None:
    """Add to the journal what only the old database has, as far as that can be read.

    Raises:
        OSError: the journal cannot be written.
    """
    if not database.exists():
        return
    with journal.reading() as lines:
        names = [*dict.fromkeys(line.study for line in lines)]
    for name in names or _only_study(database):
        try:
            study = optuna.load_study(study_name=name, storage=existing(f"sqlite:///{database}"))
            complete_journal(study, journal, lines, skip_unreadable=True)
        except OSError:
            raise
        except Exception:  # noqa: S112  a damaged database may raise anything
            continue


def _only_study(database: Path) -> list[str]:
    """Return the name of the study of a database that has a single one; else nothing."""
    try:
        names = optuna.get_all_study_names(existing(f"sqlite:///{database}"))
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
