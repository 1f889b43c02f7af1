"""Resolve the argument STUDY to a storage URL and a best.yaml, without opening either."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from autotune.configuration.flags import folder_name
from autotune.storage.database import check_storage, masked
from autotune.values.errors import StorageError, UsageError

_DATABASE = "study.db"
# The second is the name in the repository's examples.
_ANSWERS = ("best.yaml", "recorded_best.yaml")
_SQLITE = "sqlite:///"


@dataclass(frozen=True, slots=True)
class Source:
    """A study's URL, the path of a best.yaml beside it, or both; at least one of them."""

    url: str | None
    answer: Path | None


def find_source(study: str) -> Source:
    """Resolve STUDY: a URL, a folder, a file or the name of a study.

    Raises:
        UsageError: there is no such study; the message names the places searched.
        StorageError: a URL names a database file that does not exist.
    """
    if "://" in study:
        return _from_url(study)
    places = (Path(study), Path("studies", study), Path("studies", folder_name(study)))
    folders = [folder for folder in places if folder.is_dir()]
    if folders:  # a model's folder of the same name may exist beside the study's
        return _from_folder(study, next(filter(_holds_study, folders), folders[0]))
    path = Path(study)
    if not path.is_file():
        _refuse(study, f"there is neither {path} nor {Path('studies', study)}")
    if path.suffix in (".yaml", ".yml"):
        return Source(None, path)
    return Source(f"{_SQLITE}{path}", _beside(path.parent))


def _from_url(url: str) -> Source:
    check_storage(url)
    if not url.startswith(_SQLITE):
        return Source(url, None)
    database = Path(url.removeprefix(_SQLITE))
    if not database.is_file():  # SQLite would make one
        raise StorageError(
            f"the storage {masked(url)} cannot be used: {database} does not exist. "
            "Check the path; `autotune search` makes a study."
        )
    return Source(url, _beside(database.parent))


def _from_folder(study: str, folder: Path) -> Source:
    database, answer = folder / _DATABASE, _beside(folder)
    if database.is_file():
        return Source(f"{_SQLITE}{database}", answer)
    if answer is None:
        _refuse(study, f"{folder} holds neither {_DATABASE} nor {_ANSWERS[0]}")
    return Source(None, answer)


def _holds_study(folder: Path) -> bool:
    return (folder / _DATABASE).is_file() or _beside(folder) is not None


def _beside(folder: Path) -> Path | None:
    return next((folder / name for name in _ANSWERS if (folder / name).is_file()), None)


def _refuse(study: str, why: str) -> NoReturn:
    raise UsageError(
        f"STUDY {study!r}: {why}. Name a study of this folder (studies/NAME), its folder, its "
        f"{_DATABASE}, a best.yaml or a storage URL."
    )
