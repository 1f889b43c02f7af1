"""An Optuna study with its storage: trials are told and given up by their numbers.

Optuna's `Trial` exists only where a trial was asked for. A trial that another process left running
has to be told or given up as well. Optuna's storage classes have methods for that, by identifier.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import optuna
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from autotune.storage.database import disconnect
from autotune.storage.journal_lines import CONSTRAINTS_ATTRIBUTE, TrialRecord
from autotune.storage.leases import LEASE
from autotune.storage.trial_details import CONFIG, REASON


@dataclass(frozen=True)
class StoredStudy:
    """An Optuna study and the storage in which it lies."""

    study: optuna.Study
    storage: BaseStorage

    @cached_property
    def study_id(self) -> int:
        """Identifier of the study in its storage."""
        return self.storage.get_study_id_from_name(self.study.study_name)

    def attributes(self) -> Mapping[str, Any]:
        """Return the study's attributes now, by key; not to be changed.

        `Study.user_attrs` copies all of them at each read: milliseconds in a long study.
        """
        return self.storage.get_study_user_attrs(self.study_id)

    def ids(self) -> list[int]:
        """Return the identifiers of all trials in their storage, in the order of their numbers."""
        return [self._id_of(trial.number) for trial in self.study.get_trials(deepcopy=False)]

    def start(self, number: int, config: Mapping[str, Any], lease: Mapping[str, Any]) -> None:
        """Note the configuration of a trial that was asked for, and the process that runs it.

        The lease is last: a trial without one has no owner, and any process may give it up.
        """
        self._set(number, {CONFIG: config, LEASE: lease})

    def finish(self, running: FrozenTrial, record: TrialRecord) -> None:
        """Tell a trial that was asked for.

        Raises:
            UpdateFinishedTrialError: another process has given it up.
        """
        new = {n: v for n, v in record.attributes.items() if n not in running.user_attrs}
        self._set(running.number, new)
        # `Trial.set_constraint` has another form, see CONSTRAINTS_ATTRIBUTE.
        self.storage.set_trial_system_attr(
            self._id_of(running.number), CONSTRAINTS_ATTRIBUTE, record.constraints
        )
        self.study.tell(running.number, record.value)

    def add(self, record: TrialRecord) -> int:
        """Add a finished trial in one atomic step; return its number.

        Unlike `Study.add_trial`, this tells the number even if several processes write.
        """
        trial_id = self.storage.create_new_trial(self.study_id, record.as_trial())
        return self.storage.get_trial_number_from_id(trial_id)

    def give_up(self, number: int, reason: str) -> None:
        """Tell Optuna that a trial failed, unless another process has finished it already."""
        with suppress(optuna.exceptions.UpdateFinishedTrialError):
            self._set(number, {REASON: reason})
            self.study.tell(number, state=TrialState.FAIL)

    def close(self) -> None:
        """Close all connections to the storage; the study must not be used any more."""
        disconnect(self.storage)

    def _set(self, number: int, attributes: Mapping[str, Any]) -> None:
        trial_id = self._id_of(number)
        for name, value in attributes.items():
            self.storage.set_trial_user_attr(trial_id, name, value)

    def _id_of(self, number: int) -> int:
        return self.storage.get_trial_id_from_study_id_trial_number(self.study_id, number)
