"""What a study carries for Optuna Dashboard besides its trials: a note, plots, logs, best.yaml.

All of it lies in attributes of the study and in files beside it, never in a trial, and follows from
what the search left: attaching again replaces it.
"""

from __future__ import annotations

import io
import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import optuna
import optuna_dashboard
from optuna.artifacts import FileSystemArtifactStore
from optuna.trial import FrozenTrial, TrialState

# Its `save_note` takes a trial only while that runs.
from optuna_dashboard._note import get_note_from_system_attrs, save_note_with_version

from autotune.dashboard.note import OWN_LINE, summary, trial_summary
from autotune.dashboard.plots import figures
from autotune.flags import folder_name

ARTIFACTS = "artifacts"
"""The folder beside a study's database."""
# Where Optuna and the dashboard look for what is attached to a study, and to a finished trial,
# whose own attributes cannot be written any more.
_OF_STUDY = "artifacts:"
_OF_TRIAL = "dashboard:artifacts:{trial_id}:"
# Of a longer log the end is attached: there stands what went wrong.
_MOST_BYTES = 1 << 20


def attach(storage: optuna.storages.BaseStorage, folder: Path) -> None:
    """Bring note, plots and files of the studies in a storage up to date; the caller writes alone.

    Raises:
        OSError, sqlalchemy.exc.SQLAlchemyError: something cannot be written.
    """
    studies = own_studies(storage)
    for study in studies:
        trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        _attach_note(study, None, summary(study, trials))
        for trial in trials:
            _attach_note(study, trial._trial_id, trial_summary(trial, trials[0]))
        for name, figure in figures(trials, _light(study), _memory_limit(study)).items():
            optuna_dashboard.save_plotly_graph_object(study, figure, graph_object_id=name)
    for study in studies:
        if len(studies) == 1 or folder_name(study.study_name) == folder.name:
            _attach_files(study, folder)


def own_studies(storage: optuna.storages.BaseStorage) -> list[optuna.Study]:
    """The studies of a storage that autotune made."""
    names = optuna.get_all_study_names(storage)
    studies = [optuna.load_study(study_name=name, storage=storage) for name in names]
    return [study for study in studies if "constraint_names" in study.user_attrs]


def _attach_note(study: optuna.Study, trial_id: int | None, text: str) -> None:
    """Save a note of the study or of a trial, unless there is one that a person has written."""
    storage, study_id = study._storage, study._study_id
    note = get_note_from_system_attrs(storage.get_study_system_attrs(study_id), trial_id)
    if note["body"] != text and (not note["body"] or OWN_LINE in note["body"]):
        save_note_with_version(storage, study_id, trial_id, note["version"] + 1, text)


def _light(study: optuna.Study) -> float | None:
    """Samples per second of computing alone; None without a diagnosis."""
    stages = study.user_attrs.get("diagnosis")
    return None if stages is None else stages["batch_size"] / stages["compute_seconds"]


def _memory_limit(study: optuna.Study) -> int | None:
    limit = study.user_attrs.get("identity", {}).get("memory_limit_bytes")
    return None if limit is None else int(limit)


@dataclass(frozen=True, slots=True)
class _Attached:
    """A file, and where it is attached to."""

    path: Path
    name: str
    prefix: str
    """Of the study's attribute."""


def _attach_files(study: optuna.Study, folder: Path) -> None:
    """Copy best.yaml and the logs of trials, as far as they are new."""
    (folder / ARTIFACTS).mkdir(exist_ok=True)
    store = FileSystemArtifactStore(str(folder / ARTIFACTS))
    known = study._storage.get_study_system_attrs(study._study_id)
    for file in _files(study, folder):
        # The same name each time, so that a file which grew replaces what it was.
        artifact = str(uuid.uuid5(uuid.NAMESPACE_URL, file.path.relative_to(folder).as_posix()))
        if _is_newer(file.path, folder / ARTIFACTS / artifact):
            store.write(artifact, io.BytesIO(_end_of(file.path)))
        about = {
            "artifact_id": artifact,
            "filename": file.name,
            "mimetype": "text/plain; charset=utf-8",
            "encoding": None,
        }
        key, text = file.prefix + artifact, json.dumps(about)
        if known.get(key) != text:
            study._storage.set_study_system_attr(study._study_id, key, text)


def _files(study: optuna.Study, folder: Path) -> Iterator[_Attached]:
    best = folder / "best.yaml"
    if best.is_file():
        yield _Attached(best, best.name, _OF_STUDY)
    for trial in study.get_trials(deepcopy=False):
        if trial.state.is_finished():
            yield from _logs(trial, folder / "trials" / f"{trial.number:04d}")


def _logs(trial: FrozenTrial, folder: Path) -> Iterator[_Attached]:
    """What a trial's processes printed, where they printed anything."""
    prefix = _OF_TRIAL.format(trial_id=trial._trial_id)
    for path in sorted(folder.rglob("*.log")):
        if path.is_file() and path.stat().st_size:
            yield _Attached(path, path.relative_to(folder).as_posix(), prefix)


def _is_newer(path: Path, copy: Path) -> bool:
    return not copy.exists() or copy.stat().st_mtime < path.stat().st_mtime


def _end_of(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _MOST_BYTES))
        return file.read()
