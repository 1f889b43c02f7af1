"""Study attributes that Optuna Dashboard reads: read once, written in batches.

The dashboard's own functions read all attributes for each note and plot, which takes time quadratic
in the number of trials. They write each in its own transaction, which waits for the disk.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import count
from typing import Any

from optuna.storages import RDBStorage
from optuna.storages._rdb.models import StudyModel, StudySystemAttributeModel
from optuna.storages._rdb.storage import _create_scoped_session

# The dashboard's own names of the attributes, and its way of splitting long texts.
from optuna_dashboard._custom_plot_data import SYSTEM_ATTR_PLOT_DATA, split_plot_data
from optuna_dashboard._note import note_str_key_prefix, note_ver_key, split_body

# Attributes in a transaction, which takes milliseconds, so that a search can write in between.
_AT_ONCE = 200


class StudyAttributes:
    """Attributes of a study as read, with the changes to write."""

    def __init__(self, storage: RDBStorage, study_id: int) -> None:
        self._storage, self._study_id = storage, study_id
        self._there: Mapping[str, Any] = storage.get_study_system_attrs(study_id)
        self._changed: dict[str, Any] = {}

    def names(self) -> list[str]:
        """Return the names of the stored attributes."""
        return list(self._there)

    def get(self, name: str) -> Any:
        """Return a stored value; None if there is none."""
        return self._there.get(name)

    def set(self, name: str, value: Any) -> None:
        """Note a value to write, unless it is stored already."""
        if self._there.get(name) != value:
            self._changed[name] = value

    def note(self, trial_id: int | None) -> str:
        """Return the stored note of a trial; of the study if `trial_id` is None."""
        prefix = note_str_key_prefix(trial_id)
        parts = (self._there.get(f"{prefix}{place}") for place in count())
        return "".join(iter(lambda: next(parts), None))

    def set_note(self, trial_id: int | None, text: str) -> None:
        """Note another text to write, with a new version, by which open pages notice it."""
        if self.note(trial_id) == text:
            return
        key, prefix = note_ver_key(trial_id), note_str_key_prefix(trial_id)
        self.set(key, int(self._there.get(key, 0)) + 1)
        self._set_parts(prefix, split_body(text, trial_id))

    def set_plot(self, name: str, plot: str) -> None:
        """Note a plot to write, as Plotly's JSON."""
        prefix = f"{SYSTEM_ATTR_PLOT_DATA}{name}:"
        self._set_parts(prefix, split_plot_data(plot, prefix))

    def write(self) -> None:
        """Write the changes in short transactions.

        Raises:
            SQLAlchemyError, StorageInternalError: they cannot be written.
        """
        changed = list(self._changed.items())
        for start in range(0, len(changed), _AT_ONCE):
            self._write(dict(changed[start : start + _AT_ONCE]))
        self._changed = {}

    def _set_parts(self, prefix: str, parts: Mapping[str, str]) -> None:
        for name, part in parts.items():
            self.set(name, part)
        for place in count(len(parts)):  # clear further parts of a longer text
            if f"{prefix}{place}" not in self._there:
                break
            self.set(f"{prefix}{place}", "")

    def _write(self, changed: Mapping[str, Any]) -> None:
        model = StudySystemAttributeModel
        # Two dashboards at the same time write the same values.
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
