"""What a study carries for Optuna Dashboard besides its trials: a note, plots, logs, best.yaml.

All of it lies in attributes of the study and in files beside it, never in a trial, and follows from
what the search left: attaching again replaces it. No search writes these attributes, and none is
kept away: each transaction is over in milliseconds.
"""

from __future__ import annotations

import io
import json
import os
import socket
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import optuna
from optuna.artifacts import FileSystemArtifactStore
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState

from autotune.dashboard.attributes import StudyAttributes
from autotune.dashboard.logs import Log, host_of, hosts_of, logs_here
from autotune.dashboard.note import OWN_LINE, noted_answer, summary, trial_summary
from autotune.dashboard.place import StudyPlace
from autotune.dashboard.plots import figures
from autotune.strict_yaml import dump
from autotune.trial_folder import make_private
from autotune.tuning.storing.finished import RULINGS

# Where Optuna and the dashboard look for what is attached to a study, and to a finished trial,
# whose own attributes cannot be written any more.
_OF_STUDY = "artifacts:"
_OF_TRIAL = "dashboard:artifacts:{trial_id}:"
# Of a longer log the end is attached: there stands what went wrong.
_MOST_BYTES = 1 << 20
_NAMED_BY_US = 5
_MOST_NUMBERS = 8


def attach(storage: RDBStorage, place: StudyPlace) -> list[str]:
    """Bring note, plots and files of the studies in a storage up to date.

    Returns:
        A line for each other host that keeps logs, which cannot be attached here.

    Raises:
        OSError, SQLAlchemyError, StorageInternalError: something cannot be written.
    """
    elsewhere: list[str] = []
    for study in own_studies(storage):
        trials = study.get_trials(deepcopy=False)
        attributes = StudyAttributes(storage, study._study_id)
        _set_notes(attributes, study, trials, shared=place.folder is None)
        for name, figure in figures(_told(trials), _light(study), _memory_limit(study)).items():
            attributes.set_plot(name, figure.to_json())
        logs = logs_here(study.study_name, trials, place.folder)
        _attach_files(attributes, study, logs, place)
        attributes.write()
        if place.folder is None:
            elsewhere += _elsewhere(study.study_name, trials, logs)
    return elsewhere


def own_studies(storage: optuna.storages.BaseStorage) -> list[optuna.Study]:
    """The studies of a storage that autotune made."""
    names = optuna.get_all_study_names(storage)
    studies = [optuna.load_study(study_name=name, storage=storage) for name in names]
    return [study for study in studies if "constraint_names" in study.user_attrs]


def _told(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    return [trial for trial in trials if trial.state == TrialState.COMPLETE]


def _set_notes(
    attributes: StudyAttributes, study: optuna.Study, trials: Sequence[FrozenTrial], shared: bool
) -> None:
    """Of the study and of each trial, but for those that a person has written."""
    told = _told(trials)
    notes: dict[int | None, str] = {None: summary(study, told)}
    rulings = study.user_attrs.get(RULINGS, {})
    for trial in told:
        host = host_of(trial) if shared else None
        notes[trial._trial_id] = trial_summary(trial, told[0], rulings, host)
    for trial_id, text in notes.items():
        before = attributes.note(trial_id)
        if not before or OWN_LINE in before:
            attributes.set_note(trial_id, text)


def _light(study: optuna.Study) -> float | None:
    """Samples per second of computing alone; None without a diagnosis."""
    stages = study.user_attrs.get("diagnosis")
    return None if stages is None else stages["batch_size"] / stages["compute_seconds"]


def _memory_limit(study: optuna.Study) -> int | None:
    limit = study.user_attrs.get("identity", {}).get("memory_limit_bytes")
    return None if limit is None else int(limit)


@dataclass(frozen=True, slots=True)
class _File:
    """What is attached."""

    name: str
    prefix: str
    """Of the study's attribute."""
    source: Path | str
    """Where it lies, or what it says."""

    def of(self, study: str) -> str:
        """Its identifier: the same each time, so that a file which grew replaces what it was."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([study, self.prefix, self.name])))


def _attach_files(
    attributes: StudyAttributes, study: optuna.Study, logs: Sequence[Log], place: StudyPlace
) -> None:
    """Copy best.yaml and the logs, as far as they are new."""
    make_private(place.artifacts)
    store = FileSystemArtifactStore(place.artifacts)
    wanted = set()
    for file in _files(study, logs, shared=place.folder is None):
        artifact = file.of(study.study_name)
        if _is_newer(file.source, place.artifacts / artifact):
            store.write(artifact, io.BytesIO(_content(file.source)))
        about = {
            "artifact_id": artifact,
            "filename": file.name,
            "mimetype": "text/plain; charset=utf-8",
            "encoding": None,
        }
        attributes.set(file.prefix + artifact, json.dumps(about))
        wanted.add(file.prefix + artifact)
    for name in attributes.names():  # another best.yaml that was attached once
        if name.startswith(_OF_STUDY) and name not in wanted and _is_ours(name):
            attributes.set(name, json.dumps(None))


def _files(study: optuna.Study, logs: Sequence[Log], shared: bool) -> Iterator[_File]:
    """best.yaml as the study keeps it, wherever --out had it written, and the logs.

    Where other hosts see the logs listed, too, their names say which one has them.
    """
    best = noted_answer(study)
    if best is not None:
        yield _File("best.yaml", _OF_STUDY, dump(best.model_dump(mode="json")))
    whose = f"{socket.gethostname()}/" if shared else ""
    for log in logs:
        prefix = _OF_TRIAL.format(trial_id=log.trial._trial_id)
        yield _File(whose + log.name, prefix, log.path)


def _is_ours(name: str) -> bool:
    """Whether we named an artifact: by what it is, not at random as the dashboard does."""
    try:
        return uuid.UUID(name.removeprefix(_OF_STUDY)).version == _NAMED_BY_US
    except ValueError:
        return False


def _is_newer(source: Path | str, copy: Path) -> bool:
    if not copy.exists():
        return True
    if isinstance(source, str):
        return copy.read_text(encoding="utf-8", errors="replace") != source
    return copy.stat().st_mtime < source.stat().st_mtime


def _content(source: Path | str) -> bytes:
    if isinstance(source, str):
        return source.encode()
    with source.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _MOST_BYTES))
        return file.read()


def _elsewhere(study: str, trials: Sequence[FrozenTrial], logs: Sequence[Log]) -> Iterator[str]:
    """Which hosts have the logs that are not here."""
    here = {log.trial.number for log in logs}
    for host, numbers in hosts_of(trials).items():
        missing = [str(number) for number in numbers if number not in here]
        if host != socket.gethostname() and missing:
            named = ", ".join(missing[:_MOST_NUMBERS])
            more = f" and {len(missing) - _MOST_NUMBERS} more" * (len(missing) > _MOST_NUMBERS)
            yield f"{study}: the logs of trials {named}{more} lie on {host}, not here"
