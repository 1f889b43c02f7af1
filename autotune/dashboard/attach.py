"""Attach a note, the logs, best.yaml and the report to a study for Optuna Dashboard.

They lie in attributes of the study and in files beside it, never in a trial. Attaching again
replaces them. No search writes these attributes, and none is blocked: each transaction takes
milliseconds.
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
import optuna_dashboard
from optuna.artifacts import FileSystemArtifactStore
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState
from optuna_dashboard.artifact import get_artifact_path

from autotune.dashboard.logs import Log, hosts_of, logs_here
from autotune.dashboard.note import OWN_MARK, noted_answer, summary
from autotune.process.common.trial_folder import make_private
from autotune.report.data import read_report
from autotune.report.html import page
from autotune.storage.notes import StudyNotes
from autotune.study.find_study import StudyPlace
from autotune.values.strict_yaml import dump
from autotune.values.text import clean

# Prefixes of study attributes in which Optuna and the dashboard look for artifacts of the study and
# of its finished trials. `optuna.artifacts` cannot attach to a trial that is finished.
_OF_STUDY = "artifacts:"
_OF_TRIAL = "dashboard:artifacts:{trial_id}:"
# Most bytes of an attached log: its end, which holds the error.
_MOST_BYTES = 1 << 20
_TEXT, _PAGE = "text/plain; charset=utf-8", "text/html; charset=utf-8"
_MOST_NUMBERS = 8


def attach(storage: BaseStorage, place: StudyPlace) -> list[str]:
    """Update the notes and the files of the studies in a storage.

    Returns:
        A line for each other host with logs, which cannot be attached here.

    Raises:
        OSError, SQLAlchemyError, StorageInternalError: something cannot be written.
        StudyMismatchError: another program told a trial of such a study.
    """
    elsewhere: list[str] = []
    for study in own_studies(storage):
        trials = study.get_trials(deepcopy=False)
        logs = logs_here(study.study_name, trials, place.folder)
        report = _attach_files(storage, study, logs, place)
        _set_note(study, trials, get_artifact_path(study, report))
        if place.folder is None:
            elsewhere += _elsewhere(study.study_name, trials, logs)
    return elsewhere


def own_studies(storage: BaseStorage) -> list[optuna.Study]:
    """Return the studies of a storage that autotune made."""
    names = optuna.get_all_study_names(storage)
    studies = [optuna.load_study(study_name=name, storage=storage) for name in names]
    return [study for study in studies if StudyNotes(study.user_attrs).is_of_autotune]


def _set_note(study: optuna.Study, trials: Sequence[FrozenTrial], report: str) -> None:
    """Set the note of the study, except one that a person wrote."""
    told = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    before, note = optuna_dashboard.get_note(study), summary(study, told, report)
    if before != note and (not before or OWN_MARK in before):
        optuna_dashboard.save_note(study, note)


@dataclass(frozen=True, slots=True)
class _File:
    """A file to attach."""

    name: str
    source: Path | str
    """Path of the file, or its content."""
    mimetype: str = _TEXT
    trial: FrozenTrial | None = None
    """The trial that the file is about; None for the study."""


def _attach_files(
    storage: BaseStorage, study: optuna.Study, logs: Sequence[Log], place: StudyPlace
) -> str:
    """Copy the files that are new; return the identifier of the report."""
    make_private(place.artifacts)
    store = FileSystemArtifactStore(place.artifacts)
    study_id = storage.get_study_id_from_name(study.study_name)
    there, artifact = storage.get_study_system_attrs(study_id), ""
    for file in _files(study, logs, place):
        prefix = _OF_STUDY
        if file.trial is not None:
            number = file.trial.number
            trial_id = storage.get_trial_id_from_study_id_trial_number(study_id, number)
            prefix = _OF_TRIAL.format(trial_id=trial_id)
        artifact = _identifier(study.study_name, prefix, file.name)
        if _is_newer(file.source, place.artifacts / artifact):
            store.write(artifact, io.BytesIO(_content(file.source)))
        about = {
            "artifact_id": artifact,
            "filename": file.name,
            "mimetype": file.mimetype,
            "encoding": None,
        }
        if there.get(prefix + artifact) != json.dumps(about):
            storage.set_study_system_attr(study_id, prefix + artifact, json.dumps(about))
    return artifact


def _identifier(study: str, prefix: str, name: str) -> str:
    """Return a file's identifier, always the same, so that a changed file replaces the old one."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([study, prefix, name])))


def _files(study: optuna.Study, logs: Sequence[Log], place: StudyPlace) -> Iterator[_File]:
    """Yield the logs, best.yaml as the study notes it, and last the report.

    The names of logs begin with this host's name if other hosts share the storage.
    """
    whose = f"{socket.gethostname()}/" if place.folder is None else ""
    for log in logs:
        yield _File(whose + log.name, log.path, trial=log.trial)
    best = noted_answer(study)
    if best is not None:
        yield _File("best.yaml", dump(best.model_dump(mode="json")))
    report = clean(page(read_report(place, study.study_name)))
    yield _File("report.html", report.encode("utf-8", "replace").decode(), _PAGE)


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
    """Yield a line for each host that has logs which are missing here."""
    here = {log.trial.number for log in logs}
    for host, numbers in hosts_of(trials).items():
        missing = [str(number) for number in numbers if number not in here]
        if host != socket.gethostname() and missing:
            named = ", ".join(missing[:_MOST_NUMBERS])
            more = f" and {len(missing) - _MOST_NUMBERS} more" * (len(missing) > _MOST_NUMBERS)
            yield f"{study}: the logs of trials {named}{more} are on {host}, not here"
