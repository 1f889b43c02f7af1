"""Command `repair`: rebuild a study's database or shared file from its journal."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.commands import common
from autotune.values.errors import UsageError

_DATABASES = (".db", ".sqlite", ".sqlite3")


@click.command(short_help="Rebuild a study's database from its journal.")
@click.argument("study")
@click.option(
    "--storage",
    help="Rebuild this file: sqlite:///FILE or journal:///FILE. Default: study.db in the study's "
    "folder.",
)
def repair(study: str, storage: str | None) -> None:
    """Rebuild the database of STUDY (a name, folder or database) from its results.jsonl.

    A file that several workers share is rebuilt from what is readable of it as well.
    """
    from autotune.console.progress import repair_lines, to_stderr
    from autotune.storage.database import file_of, is_shared, storage_errors
    from autotune.storage.mutex import study_lock
    from autotune.storage.shared_mutex import sole_user
    from autotune.study.repair import repair as repaired

    folder, url = _place(study)
    url = _checked(storage) if storage is not None else url
    file = file_of(url)
    assert file is not None, "it was checked"
    with (
        storage_errors(url),
        # as searches lock it
        sole_user(file) if is_shared(url) else study_lock(file.resolve().parent),
    ):
        for line in repair_lines(repaired(folder, url)):
            to_stderr(line)


def _place(study: str) -> tuple[Path, str]:
    """Return the folder with the journal, and the URL of the database."""
    from autotune.storage.database import file_of

    if "://" in study:
        file = file_of(_checked(study))
        assert file is not None, "it was checked"
        return file.parent, study
    own, named = common.study_folder(study), Path(study)
    for folder in (own, named):
        if folder.is_dir():
            return folder, f"sqlite:///{folder / 'study.db'}"
    if named.is_file() and named.suffix in _DATABASES:
        return named.parent, f"sqlite:///{named}"
    raise UsageError(
        f"{study!r} is no study: there is neither {own} nor a folder or a database {study}."
    )


def _checked(storage: str) -> str:
    """Return the URL if it names a file in a folder that exists."""
    from autotune.storage.database import check_url, file_of, masked

    check_url(storage)
    database = file_of(storage)
    if database is None:
        raise UsageError(
            f"{masked(storage)} is no file, and only a file is rebuilt: a search tells a server "
            "by itself what results.jsonl has. Name an SQLite file as sqlite:///FILE, a shared "
            "file as journal:///FILE."
        )
    if not database.parent.is_dir():
        raise UsageError(f"{masked(storage)}: there is no folder {database.parent}.")
    return storage
