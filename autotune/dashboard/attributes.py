"""The attributes of a study that Optuna Dashboard reads: read once, written by the hundred.

Its own functions read all of them for each note and each plot, which takes the square of the number
of trials, and write each in a transaction of its own, which waits for the disk.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import count
from typing import Any

from optuna.storages import RDBStorage
from optuna.storages._rdb.models import StudyModel, StudySystemAttributeModel
from optuna.storages._rdb.storage import _create_scoped_session

# The dashboard's own words for where a note and a plot stand, and how long texts are split.
from optuna_dashboard._custom_plot_data import SYSTEM_ATTR_PLOT_DATA, split_plot_data
from optuna_dashboard._note import note_str_key_prefix, note_ver_key, split_body

# Attributes in a transaction, which takes milliseconds: a search may write meanwhile.
_AT_ONCE = 200


class StudyAttributes:
    """What is there, and what is to be there."""

    def __init__(self, storage: RDBStorage, study_id: int) -> None:
        self._storage, self._study_id = storage, study_id
        self._there: Mapping[str, Any] = storage.get_study_system_attrs(study_id)
        self._changed: dict[str, Any] = {}

    def names(self) -> list[str]:
        """Of all that is there."""
        return list(self._there)

    def get(self, name: str) -> Any:
        """What is there; None where nothing is."""
        return self._there.get(name)

    def set(self, name: str, value: Any) -> None:
        """Have it written, unless it is there already."""
        if self._there.get(name) != value:
            self._changed[name] = value

    def note(self, trial_id: int | None) -> str:
        """The note of a trial, or of the study."""
        prefix = note_str_key_prefix(trial_id)
        parts = (self._there.get(f"{prefix}{place}") for place in count())
        return "".join(iter(lambda: next(parts), None))

    def set_note(self, trial_id: int | None, text: str) -> None:
        """Have another note there; open pages see by its version that it is."""
        if self.note(trial_id) == text:
            return
        key, prefix = note_ver_key(trial_id), note_str_key_prefix(trial_id)
        self.set(key, int(self._there.get(key, 0)) + 1)
        self._set_parts(prefix, split_body(text, trial_id))

    def set_plot(self, name: str, plot: str) -> None:
        """Have a plot there, as Plotly's JSON."""
        prefix = f"{SYSTEM_ATTR_PLOT_DATA}{name}:"
        self._set_parts(prefix, split_plot_data(plot, prefix))

    def write(self) -> None:
        """Write what is not there yet, in short transactions.

        Raises:
            SQLAlchemyError, StorageInternalError: it cannot be written.
        """
        changed = list(self._changed.items())
        for start in range(0, len(changed), _AT_ONCE):
            self._write(dict(changed[start : start + _AT_ONCE]))
        self._changed = {}

    def _set_parts(self, prefix: str, parts: Mapping[str, str]) -> None:
        for name, part in parts.items():
            self.set(name, part)
        for place in count(len(parts)):  # what a longer text left behind
            if f"{prefix}{place}" not in self._there:
                break
            self.set(f"{prefix}{place}", "")

    def _write(self, changed: Mapping[str, Any]) -> None:
        model = StudySystemAttributeModel
        # What two dashboards write at the same time is the same.
        with _create_scoped_session(self._storage.scoped_session, True) as session:
            if session.get(StudyModel, self._study_id) is None:  # deleted meanwhile
                return
            query = session.query(model).filter(model.study_id == self._study_id)
            there = {str(row.key): row for row in query.filter(model.key.in_(changed))}
            for name, value in changed.items():
                if name in there:
                    there[name].value_json = json.dumps(value)
                else:
                    row = model(study_id=self._study_id, key=name, value_json=json.dumps(value))
                    session.add(row)
