"""A study as it lies there: read, never continued and never written to.

What is not autotune's is refused. What is unfinished is no fault: a search may be running.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import optuna
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState

from autotune.config import TrainingConfig
from autotune.errors import AutotuneError, StorageError, UsageError
from autotune.tuning.storing.finished import FinishedTrial, as_known, finished_trial
from autotune.tuning.storing.storage import existing, masked, storage_errors

_STATES: Mapping[TrialState, Literal["running", "lost"]] = {
    TrialState.RUNNING: "running",
    TrialState.FAIL: "lost",
}


@dataclass(frozen=True, slots=True)
class OpenTrial:
    """A trial without a verdict."""

    number: int
    state: Literal["running", "lost"]
    """Lost: a fault of the infrastructure, or an interruption."""
    config: TrainingConfig | None
    reason: str


@dataclass(frozen=True)
class Archive:
    """Everything that a study holds."""

    name: str
    storage: str
    """URL without its password, or the file that is read instead."""
    finished: tuple[FinishedTrial, ...] = ()
    open: tuple[OpenTrial, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)


def read_archive(url: str, name: str | None = None) -> Archive:
    """The study of that name, or the only one of the storage.

    Raises:
        StorageError: the storage cannot be read, or holds no study.
        UsageError: there is no study of that name, several to choose from, or none of autotune's.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with _collecting_nothing(), _opened(url) as storage:
        names = optuna.get_all_study_names(storage)
        chosen = _chosen(names, name, masked(url))
        study = optuna.load_study(study_name=chosen, storage=storage)
        trials, notes = study.get_trials(deepcopy=False), study.user_attrs
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    try:
        finished = tuple(as_known(finished_trial(trial), notes) for trial in complete)
        opened = tuple(_open(trial) for trial in trials if trial.state in _STATES)
    except (AttributeError, KeyError, TypeError, ValueError, AutotuneError) as error:
        raise UsageError(
            f"{masked(url)}: study {chosen!r} is none of autotune's: its trials have no "
            "configuration with constraints. Name a study that `autotune search` made."
        ) from error
    return Archive(chosen, masked(url), finished, opened, notes)


def study_names(url: str) -> list[str]:
    """Of all studies that a storage holds, in the order of the alphabet.

    Raises:
        StorageError: the storage cannot be read.
    """
    with _opened(url) as storage:
        return sorted(optuna.get_all_study_names(storage))


@contextmanager
def _opened(url: str) -> Iterator[RDBStorage]:
    """A storage that is let go of afterwards, which a search that reads another's is to do."""
    with storage_errors(url):
        storage = existing(url)
        try:
            yield storage
        finally:
            storage.remove_session()
            storage.engine.dispose()


@contextmanager
def _collecting_nothing() -> Iterator[None]:
    """Without the garbage collector, which would go through all that was read again and again.

    Of 1000 trials that took two thirds of the time, and more than ten times as much as of 100.
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
    settings = trial.user_attrs.get("config")
    config = None if settings is None else TrainingConfig.of(settings)
    reason = str(trial.user_attrs.get("reason", ""))
    return OpenTrial(trial.number, _STATES[trial.state], config, reason)
