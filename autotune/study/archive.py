"""Find a stored study, and read it without continuing it or writing to it.

Studies of other programs are refused. Unfinished trials are no fault: a search may be running.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NoReturn

import optuna
from optuna.trial import FrozenTrial, TrialState

from autotune.configuration.training_config import TrainingConfig
from autotune.study import storage as storages
from autotune.study.facts import (
    CONFIG,
    FORMAT,
    NOT_NEEDED,
    REASON,
    FinishedTrial,
    StudyFacts,
    as_known,
    finished_trial,
)
from autotune.values.errors import AutotuneError, StorageError, UsageError
from autotune.values.text import did_you_mean, folder_name

_STUDIES, _DATABASE = Path("studies"), "study.db"
# The second is the name in the repository's examples.
_ANSWERS = ("best.yaml", "recorded_best.yaml")
_SQLITE = b"SQLite format 3\x00"
_STATES: Mapping[TrialState, Literal["running", "lost"]] = {
    TrialState.RUNNING: "running",
    TrialState.FAIL: "lost",
}


@dataclass(frozen=True, slots=True)
class OpenTrial:
    """A trial without a verdict."""

    number: int
    state: Literal["running", "lost"]
    """State of the trial; lost means a fault of the infrastructure or an interruption."""
    config: TrainingConfig | None
    """The configuration; None if the trial ended before it was chosen."""
    reason: str
    """Reason why it was lost; empty while it runs, and if its process died."""


@dataclass(frozen=True)
class Archive:
    """Everything that a study contains."""

    name: str
    storage: str
    """URL without its password, or the file that is read instead."""
    finished: tuple[FinishedTrial, ...] = ()
    """Finished trials in order, with the accuracy that became known since."""
    open: tuple[OpenTrial, ...] = ()
    notes: StudyFacts = field(default_factory=StudyFacts)


def read_archive(url: str, name: str | None = None) -> Archive:
    """Read the study of that name, or the only one in the storage.

    Raises:
        StorageError: the storage cannot be read, or contains no study.
        UsageError: no study has that name, there are several without a name given, or the study is
            not autotune's.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with storages.storage_errors(url):
        storage = storages.existing(url)
        try:
            names = optuna.get_all_study_names(storage)
            chosen = _chosen(names, name, storages.masked(url))
            study = optuna.load_study(study_name=chosen, storage=storage)
            trials, notes = study.get_trials(deepcopy=False), StudyFacts(study.user_attrs)
        finally:
            storages.disconnect(storage)
    known = notes.attributes.get("identity")
    if isinstance(known, dict) and known.get("facts", {}).get("format") != FORMAT:
        raise UsageError(
            f"{storages.masked(url)}: study {chosen!r} was stored by another version of autotune, "
            "in another form. Read it with that version, or search again under another name."
        )
    notes.check()
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    try:
        finished = tuple(as_known(finished_trial(trial), notes) for trial in complete)
        left = [t for t in trials if t.state in _STATES and t.user_attrs.get(REASON) != NOT_NEEDED]
        opened = tuple(map(_open, left))
    except (AttributeError, KeyError, TypeError, ValueError, AutotuneError) as error:
        raise UsageError(
            f"{storages.masked(url)}: study {chosen!r} was not made by autotune: its trials have "
            "no configuration with constraints. Name a study that `autotune search` made."
        ) from error
    return Archive(chosen, storages.masked(url), finished, opened, notes)


def _chosen(names: Sequence[str], name: str | None, storage: str) -> str:
    if not names:
        raise StorageError(f"{storage} holds no study. `autotune search` makes one.")
    listed = ", ".join(map(repr, sorted(names)))
    if name is None and len(names) > 1:
        raise UsageError(
            f"{storage} holds several studies: {listed}. Choose one by name (`report`: --study)."
        )
    if name is not None and name not in names:
        raise UsageError(f"{storage} holds no study {name!r}; it holds {listed}.")
    return name or names[0]


def _open(trial: FrozenTrial) -> OpenTrial:
    settings = trial.user_attrs.get(CONFIG)
    config = None if settings is None else TrainingConfig.of(settings)
    reason = str(trial.user_attrs.get(REASON, ""))
    return OpenTrial(trial.number, _STATES[trial.state], config, reason)


@dataclass(frozen=True, slots=True)
class StudyPlace:
    """A study's storage, the path of a best.yaml beside it, or both; at least one of them."""

    url: str | None
    """URL of the storage, password included."""
    answer: Path | None

    @property
    def folder(self) -> Path | None:
        """Return the folder of an SQLite file, with trials and best.yaml; None without a file."""
        database = storages.file_of(self.url)
        return None if database is None else database.resolve().parent

    @property
    def shown(self) -> str:
        """Return the storage's URL without its password."""
        return storages.masked(self.url)


def find_study(study: str | None) -> StudyPlace:
    """Resolve STUDY: a URL, a folder, a file or the name of a study; None: the only one here.

    Raises:
        UsageError: there is no such study; the message names the places searched. Or none is named,
            and there is none here, or several.
        StorageError: a URL names a database that does not exist, or the file is no database.
    """
    if study is None:
        names = _names()
        if len(names) != 1:
            listed = f"Studies here: {', '.join(names)}."
            none = "There is none in this directory."
            raise UsageError(f"Name a study. {listed if names else none}")
        study = str(_STUDIES / names[0])
    if "://" in study:
        return _from_url(study)
    path = Path(study)
    for folder in (path, _STUDIES / study, _STUDIES / folder_name(study)):
        database, answer = folder / _DATABASE, _beside(folder)
        if database.is_file():
            return StudyPlace(f"sqlite:///{database}", answer)
        if answer is not None:
            return StudyPlace(None, answer)
    if not path.is_file():
        places = f"neither {path} nor {_STUDIES / study}"
        _refuse(study, f"{places} is a file, or a directory with {_DATABASE} or {_ANSWERS[0]}")
    if path.suffix in (".yaml", ".yml"):
        return StudyPlace(None, path)
    if path.name != _DATABASE:  # a damaged one can be restored, which reading it says
        with path.open("rb") as file:
            if file.read(len(_SQLITE)) != _SQLITE:
                _refuse(study, "it is not an SQLite database")
    return StudyPlace(f"sqlite:///{path}", _beside(path.parent))


def _from_url(url: str) -> StudyPlace:
    storages.check_storage(url)
    if storages.is_server(url):
        return StudyPlace(url, None)
    database = storages.file_of(url)
    if database is None:
        _refuse(url, "it is in memory, where no other program can read it")
    if not database.is_file():  # SQLite would make one
        raise StorageError(
            f"the storage {storages.masked(url)} cannot be used: {database} does not exist. "
            "Check the path; `autotune search` makes a study."
        )
    return StudyPlace(url, _beside(database.parent))


def _beside(folder: Path) -> Path | None:
    return next((folder / name for name in _ANSWERS if (folder / name).is_file()), None)


def _names() -> list[str]:
    return sorted(file.parent.name for file in _STUDIES.glob(f"*/{_DATABASE}"))


def _refuse(study: str, why: str) -> NoReturn:
    names = _names()
    known = f" Studies here: {', '.join(names)}." if names else " `autotune search` makes one."
    raise UsageError(
        f"{study!r} is not a study: {why}.{did_you_mean(study, names)} Name a study of studies/, "
        f"its directory, its {_DATABASE}, a best.yaml or a storage URL.{known}"
    )
