"""Makes a study's database anew from its journal; what was there is kept beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autotune.errors import StorageError
from autotune.objectives import OBJECTIVES
from autotune.tuning.storing.journal import Journal
from autotune.tuning.storing.opening import created
from autotune.tuning.storing.overrule import amend
from autotune.tuning.storing.retell import retell
from autotune.tuning.storing.storage import storage_errors

# What SQLite may keep beside a database; they belong to it and to no other.
_COMPANIONS = ("", "-journal", "-wal", "-shm")


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was done."""

    database: Path
    trials: int
    set_aside: int
    """Lines of the journal that were not readable."""
    backup: Path | None
    """Where the old database is; None where there was none."""


def repair(folder: Path, database: Path) -> Repaired:
    """Make `database` from `folder`/results.jsonl. To be called with the database's folder locked.

    Raises:
        StorageError: there is no journal, or it holds no trial: nothing is changed.
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
        with journal.reading() as lines:
            if not any(line.record.kind == "trial" for line in lines):
                raise StorageError(f"{journal.path} holds no finished trial; nothing was changed.")
            beside.unlink(missing_ok=True)
            trials = 0
            for name in dict.fromkeys(line.study for line in lines):
                study = created(name, url, OBJECTIVES["throughput"])
                trials += retell(study, journal, lines)
                amend(study)
        backup = _put_aside(database)
        beside.replace(database)
    return Repaired(database, trials, set_aside, backup)


def _put_aside(database: Path) -> Path | None:
    """Rename a database to the first name that is free; nothing is ever overwritten."""
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
