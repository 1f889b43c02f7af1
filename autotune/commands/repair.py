"""Command `repair`: rebuild a study's database from its journal."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.commands import common
from autotune.values.errors import UsageError

_DATABASES = (".db", ".sqlite", ".sqlite3")


@click.command()
@click.argument("study")
@click.option(
    "--storage",
    help="Rebuild this database: sqlite:///FILE. Default: study.db in the study's folder.",
)
def repair(study: str, storage: str | None) -> None:
    """Rebuild the database of STUDY (a name, folder or database) from its results.jsonl."""
    from autotune.console.progress import repair_lines, to_stderr
    from autotune.storage.mutex import study_lock
    from autotune.study.repair import repair as repaired

    folder, database = _place(study)
    if storage is not None:
        database = _file_of(storage)
    database = database.resolve()  # as a search locks it
    with study_lock(database.parent):
        for line in repair_lines(repaired(folder, database)):
            to_stderr(line)


def _place(study: str) -> tuple[Path, Path]:
    """Return the folder with the journal, and the database."""
    if "://" in study:
        database = _file_of(study)
        return database.parent, database
    own, named = common.study_folder(study), Path(study)
    for folder in (own, named):
        if folder.is_dir():
            return folder, folder / "study.db"
    if named.is_file() and named.suffix in _DATABASES:
        return named.parent, named
    raise UsageError(
        f"{study!r} is no study: there is neither {own} nor a folder or a database {study}."
    )


def _file_of(storage: str) -> Path:
    from autotune.storage.database import check_storage, database_of, masked

    check_storage(storage)
    database = database_of(storage)
    if database is None:
        raise UsageError(
            f"{masked(storage)} is no file, and only a file is rebuilt: a search tells a server "
            "by itself what results.jsonl has. Name an SQLite file as sqlite:///FILE."
        )
    if not database.parent.is_dir():
        raise UsageError(f"{masked(storage)}: there is no folder {database.parent}.")
    return database
