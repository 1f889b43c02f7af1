"""Attach notes, plots, logs and best.yaml to a study for Optuna Dashboard.

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
from optuna.artifacts import FileSystemArtifactStore
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState

from autotune.dashboard.attributes import StudyAttributes
from autotune.dashboard.logs import Log, host_of, hosts_of, logs_here
from autotune.dashboard.note import OWN_MARK, noted_answer, summary, trial_summary
from autotune.dashboard.plots import figures
from autotune.report.find_study import StudyPlace
from autotune.storage.finished_trial import finished_trial
from autotune.storage.notes import StudyNotes
from autotune.system.trial_folder import make_private
from autotune.values.strict_yaml import dump

# Prefixes of study attributes in which Optuna and the dashboard look for artifacts of the study and
# of its finished trials, whose own attributes are read-only.
_OF_STUDY = "artifacts:"
_OF_TRIAL = "dashboard:artifacts:{trial_id}:"
# Most bytes of an attached log: its end, which holds the error.
_MOST_BYTES = 1 << 20
# UUID version of artifacts that this module names; the dashboard's are random.
_NAMED_BY_US = 5
_MOST_NUMBERS = 8


def attach(storage: RDBStorage, place: StudyPlace) -> list[str]:
    """Update notes, plots and files of the studies in a storage.

    Returns:
        A line for each other host with logs, which cannot be attached here.

    Raises:
        OSError, SQLAlchemyError, StorageInternalError: something cannot be written.
        StudyMismatchError: another program told a trial of such a study.
    """
    elsewhere: list[str] = []
    for study in own_studies(storage):
        trials = study.get_trials(deepcopy=False)
        attributes = StudyAttributes(storage, study._study_id)
        _set_notes(attributes, study, trials, shared=place.folder is None)
        told = [finished_trial(trial) for trial in _told(trials)]
        for name, figure in figures(told, _light(study), _memory_limit(study)).items():
            attributes.set_plot(name, figure.to_json())
        logs = logs_here(study.study_name, trials, place.folder)
        _attach_files(attributes, study, logs, place)
        attributes.write()
        if place.folder is None:
            elsewhere += _elsewhere(study.study_name, trials, logs)
    return elsewhere


def own_studies(storage: optuna.storages.BaseStorage) -> list[optuna.Study]:
    """Return the studies of a storage that autotune made."""
    names = optuna.get_all_study_names(storage)
    studies = [optuna.load_study(study_name=name, storage=storage) for name in names]
    return [study for study in studies if StudyNotes(study.user_attrs).is_of_autotune]


def _told(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    return [trial for trial in trials if trial.state == TrialState.COMPLETE]


def _set_notes(
    attributes: StudyAttributes, study: optuna.Study, trials: Sequence[FrozenTrial], shared: bool
) -> None:
    """Set the notes of the study and of each trial, except those that a person wrote."""
    told = _told(trials)
    notes: dict[int | None, str] = {None: summary(study, told)}
    revocations = StudyNotes(study.user_attrs).revocations
    for trial in told:
        host = host_of(trial) if shared else None
        notes[trial._trial_id] = trial_summary(trial, told[0], revocations, host)
    for trial_id, text in notes.items():
        before = attributes.note(trial_id)
        if not before or OWN_MARK in before:
            attributes.set_note(trial_id, text)


def _light(study: optuna.Study) -> float | None:
    """Return the samples per second of the computation alone; None without a diagnosis."""
    stages = StudyNotes(study.user_attrs).diagnosis
    return None if stages is None else stages.batch_size / stages.compute_seconds


def _memory_limit(study: optuna.Study) -> int | None:
    identity = StudyNotes(study.user_attrs).identity
    return None if identity is None else identity.memory_limit_bytes


@dataclass(frozen=True, slots=True)
class _File:
    """A file to attach."""

    name: str
    prefix: str
    """Prefix of the study's attribute."""
    source: Path | str
    """Path of the file, or its content."""

    def of(self, study: str) -> str:
        """Return its identifier, always the same, so that a changed file replaces the old one."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([study, self.prefix, self.name])))


def _attach_files(
    attributes: StudyAttributes, study: optuna.Study, logs: Sequence[Log], place: StudyPlace
) -> None:
    """Copy best.yaml and the logs that are new."""
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
    for name in attributes.names():  # drop a best.yaml attached earlier
        if name.startswith(_OF_STUDY) and name not in wanted and _is_ours(name):
            attributes.set(name, json.dumps(None))


def _files(study: optuna.Study, logs: Sequence[Log], shared: bool) -> Iterator[_File]:
    """Yield best.yaml as the study notes it, and the logs.

    The names of logs begin with this host's name if other hosts share the storage.
    """
    best = noted_answer(study)
    if best is not None:
        yield _File("best.yaml", _OF_STUDY, dump(best.model_dump(mode="json")))
    whose = f"{socket.gethostname()}/" if shared else ""
    for log in logs:
        prefix = _OF_TRIAL.format(trial_id=log.trial._trial_id)
        yield _File(whose + log.name, prefix, log.path)


def _is_ours(name: str) -> bool:
    """Return True if this module named an artifact."""
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
    """Yield a line for each host that has logs which are missing here."""
    here = {log.trial.number for log in logs}
    for host, numbers in hosts_of(trials).items():
        missing = [str(number) for number in numbers if number not in here]
        if host != socket.gethostname() and missing:
            named = ", ".join(missing[:_MOST_NUMBERS])
            more = f" and {len(missing) - _MOST_NUMBERS} more" * (len(missing) > _MOST_NUMBERS)
            yield f"{study}: the logs of trials {named}{more} are on {host}, not here"
