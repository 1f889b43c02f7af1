"""Read a stored study without continuing it or writing to it.

Studies of other programs are refused. Unfinished trials are no fault: a search may be running.
A warm start takes configurations from such a study.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import optuna
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from autotune.configuration.training_config import TrainingConfig
from autotune.storage.database import disconnect, existing, masked, storage_errors
from autotune.storage.finished_trial import FinishedTrial, as_known, finished_trial
from autotune.storage.notes import StudyNotes
from autotune.storage.trial_details import CONFIG, REASON
from autotune.values.errors import AutotuneError, StorageError, UsageError

# Configurations that a warm start takes.
_BEST_FEW = 3
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
    """Reason why it was lost; empty while it runs."""


@dataclass(frozen=True)
class Archive:
    """Everything that a study contains."""

    name: str
    storage: str
    """URL without its password, or the file that is read instead."""
    finished: tuple[FinishedTrial, ...] = ()
    """Finished trials in order, with revocations and validated accuracy applied."""
    open: tuple[OpenTrial, ...] = ()
    notes: StudyNotes = field(default_factory=StudyNotes)


def read_archive(url: str, name: str | None = None) -> Archive:
    """Read the study of that name, or the only one in the storage.

    Raises:
        StorageError: the storage cannot be read, or contains no study.
        UsageError: no study has that name, there are several without a name given, or the study is
            not autotune's.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with _collecting_nothing(), _opened(url) as storage:
        names = optuna.get_all_study_names(storage)
        chosen = _chosen(names, name, masked(url))
        study = optuna.load_study(study_name=chosen, storage=storage)
        trials, notes = study.get_trials(deepcopy=False), StudyNotes(study.user_attrs)
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    try:
        finished = tuple(as_known(finished_trial(trial), notes) for trial in complete)
        opened = tuple(_open(trial) for trial in trials if trial.state in _STATES)
    except (AttributeError, KeyError, TypeError, ValueError, AutotuneError) as error:
        raise UsageError(
            f"{masked(url)}: study {chosen!r} was not made by autotune: its trials have no "
            "configuration with constraints. Name a study that `autotune search` made."
        ) from error
    return Archive(chosen, masked(url), finished, opened, notes)


def study_names(url: str) -> list[str]:
    """Return the names of all studies in a storage, sorted.

    Raises:
        StorageError: the storage cannot be read.
    """
    with _opened(url) as storage:
        return sorted(optuna.get_all_study_names(storage))


@contextmanager
def _opened(url: str) -> Iterator[BaseStorage]:
    """Open a storage for reading; all its connections are closed afterwards."""
    with storage_errors(url):
        storage = existing(url)
        try:
            yield storage
        finally:
            disconnect(storage)


@contextmanager
def _collecting_nothing() -> Iterator[None]:
    """Disable the garbage collector in this block.

    Otherwise it walks all trials read so far again and again, and dominates the time for large
    studies.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _chosen(names: Sequence[str], name: str | None, storage: str) -> str:
    if not names:
        raise StorageError(f"{storage} holds no study. `autotune search` makes one.")
    listed = ", ".join(map(repr, sorted(names)))
    if name is None and len(names) > 1:
        raise UsageError(f"{storage} holds several studies: {listed}. Choose one with --study.")
    if name is not None and name not in names:
        raise UsageError(f"{storage} holds no study {name!r}, but {listed}.")
    return name or names[0]


def _open(trial: FrozenTrial) -> OpenTrial:
    settings = trial.user_attrs.get(CONFIG)
    config = None if settings is None else TrainingConfig.of(settings)
    reason = str(trial.user_attrs.get(REASON, ""))
    return OpenTrial(trial.number, _STATES[trial.state], config, reason)


def warm_start_from(storage: str, study: str | None = None) -> tuple[TrainingConfig, ...]:
    """Return the three best configurations of a study, the best first, for a warm start.

    The study may be of another machine or of another version of the model, because only its
    configurations are used, not its measurements.

    Args:
        storage: URL of the study's storage.
        study: name of the study; None for the only one there.

    Raises:
        UsageError: none of its trials was feasible; or see `read_archive`.
        StorageError: see `read_archive`.
    """
    archive = read_archive(storage, study)
    feasible = [t for t in archive.finished if t.verdict.feasible and t.verdict.value is not None]
    feasible.sort(key=lambda trial: -(trial.verdict.value or 0.0))
    if not feasible:
        raise UsageError(
            f"no trial of study {archive.name!r} in {archive.storage} was feasible. "
            "Name another study, or search without --warm-start."
        )
    return tuple(trial.config for trial in feasible[:_BEST_FEW])
