"""Resolve the argument STUDY to a storage URL and a best.yaml; neither is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from autotune.configuration.flag_types import folder_name
from autotune.storage.database import (
    check_storage,
    database_of,
    file_of,
    is_server,
    is_shared,
    masked,
)
from autotune.values.errors import StorageError, UsageError
from autotune.values.text import did_you_mean

_STUDIES, _DATABASE = Path("studies"), "study.db"
# The second is the name in the repository's examples.
_ANSWERS = ("best.yaml", "recorded_best.yaml")
_SQLITE = b"SQLite format 3\x00"


@dataclass(frozen=True, slots=True)
class StudyPlace:
    """A study's storage, the path of a best.yaml beside it, or both; at least one of them."""

    url: str | None
    """URL of the storage, password included."""
    answer: Path | None

    @property
    def folder(self) -> Path | None:
        """Return the folder of an SQLite file, with trials and best.yaml; None without a file."""
        database = database_of(self.url)
        return None if database is None else database.resolve().parent

    @property
    def artifacts(self) -> Path:
        """Return the folder of the artifacts' copies on this host."""
        return _STUDIES / ".artifacts" if self.folder is None else self.folder / "artifacts"

    @property
    def shown(self) -> str:
        """Return the storage's URL without its password."""
        return masked(self.url)


def find_study(study: str | None) -> StudyPlace:
    """Resolve STUDY: a URL, a folder, a file or the name of a study; None: the only one here.

    Raises:
        UsageError: there is no such study; the message names the places searched. Or none is named,
            and there is none here, or several.
        StorageError: a URL names a database that does not exist, or the file is no database.
    """
    if study is None:
        study = _only_one()
    if "://" in study:
        return _from_url(study)
    places = (Path(study), _STUDIES / study, _STUDIES / folder_name(study))
    folders = [folder for folder in places if folder.is_dir()]
    if folders:  # a model's folder of the same name may exist beside the study's
        return _from_folder(study, next(filter(_holds_study, folders), folders[0]))
    path = Path(study)
    if not path.is_file():
        _refuse(study, f"there is neither {path} nor {_STUDIES / study}")
    if path.suffix in (".yaml", ".yml"):
        return StudyPlace(None, path)
    if path.name != _DATABASE:  # a damaged one can be repaired, which reading it says
        _check_is_database(path)
    return StudyPlace(f"sqlite:///{path}", _beside(path.parent))


def _from_url(url: str) -> StudyPlace:
    check_storage(url)
    if is_server(url):
        return StudyPlace(url, None)
    database = file_of(url)
    if database is None:
        _refuse(url, "it is in memory, and each program has its own")
    if not database.is_file():  # SQLite would make one
        raise StorageError(
            f"the storage {masked(url)} cannot be used: {database} does not exist. "
            "Check the path; `autotune search` makes a study."
        )
    return StudyPlace(url, None if is_shared(url) else _beside(database.parent))


def _from_folder(study: str, folder: Path) -> StudyPlace:
    database, answer = folder / _DATABASE, _beside(folder)
    if database.is_file():
        return StudyPlace(f"sqlite:///{database}", answer)
    if answer is None:
        _refuse(study, f"{folder} holds neither {_DATABASE} nor {_ANSWERS[0]}")
    return StudyPlace(None, answer)


def _check_is_database(path: Path) -> None:
    try:
        with path.open("rb") as file:
            start = file.read(len(_SQLITE))
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}.") from error
    if start != _SQLITE:
        raise StorageError(
            f"{path} is no SQLite database. Name the folder of a study, or its {_DATABASE}."
        )


def _holds_study(folder: Path) -> bool:
    return (folder / _DATABASE).is_file() or _beside(folder) is not None


def _beside(folder: Path) -> Path | None:
    return next((folder / name for name in _ANSWERS if (folder / name).is_file()), None)


def _only_one() -> str:
    names = _names()
    if len(names) == 1:
        return str(_STUDIES / names[0])
    known = f"Studies here: {', '.join(names)}." if names else "There is none in this folder."
    raise UsageError(f"which study? Name it. {known}")


def _names() -> list[str]:
    return sorted(file.parent.name for file in _STUDIES.glob(f"*/{_DATABASE}"))


def _refuse(study: str, why: str) -> NoReturn:
    names = _names()
    known = f" Studies here: {', '.join(names)}." if names else " `autotune search` makes one."
    raise UsageError(
        f"{study!r} is no study: {why}.{did_you_mean(study, names)} Name a study of this folder "
        f"(studies/NAME), its folder, its {_DATABASE}, a best.yaml or a storage URL.{known}"
    )
