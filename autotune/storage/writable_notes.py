"""The notes of a study as a search writes them: to the journal first, then to the storage.

Several processes may write notes of one study. `autotune.storage.notes` says what the notes are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import optuna

from autotune.storage.journal import Journal
from autotune.storage.journal_lines import NoteRecord
from autotune.storage.leases import CLOSED, LEADER, LIVE, Lease, lease_of
from autotune.storage.mutex import Mutex
from autotune.storage.note_types import DriftCheck, Revocation, as_json
from autotune.storage.notes import Note, StudyNotes
from autotune.values.outcome import TrialOutcome, outcome_to_json


class WritableNotes(StudyNotes):
    """The notes of a study, to be read and written; see `StudyNotes` for what they are.

    A note is written to the journal first. Assigning replaces a whole note. The methods that add or
    set a part of one keep the parts that other processes wrote.
    """

    def __init__(
        self,
        study: optuna.Study,
        attributes: Callable[[], Mapping[str, Any]],
        journal: Journal | None,
        mutex: Mutex,
    ) -> None:
        super().__init__()
        self._study = study
        self._read_attributes = attributes
        self._journal = journal
        self._mutex = mutex

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The study's attributes in Optuna now, by key."""
        return self._read_attributes()

    def store(self, key: str, value: Any) -> None:
        """Write a note as JSON, unless it is there already."""
        fact = as_json(value)
        if self.attributes.get(key) == fact:
            return
        down: AbstractContextManager[None] = nullcontext()
        if self._journal is not None and key not in LIVE:
            down = self._journal.writing(self._study.study_name, NoteRecord(key, fact))
        with down:
            self._study.set_user_attr(key, fact)

    def set_qualities(self, training_equivalent: str, qualities: Sequence[float]) -> None:
        """Write the quality of each known seed of a training equivalence."""
        self._enter(WritableNotes.qualities, training_equivalent, qualities)

    def set_margin(self, training_equivalent: str, margin: float) -> None:
        """Write the accuracy margin of a training equivalence."""
        if self.margins.get(training_equivalent) != margin:
            self._enter(WritableNotes.margins, training_equivalent, margin)

    def revoke(self, training_equivalent: str, revocation: Revocation) -> None:
        """Write a revocation of a training equivalence, or of a trial `alone`."""
        self._enter(WritableNotes.revocations, training_equivalent, revocation)

    def set_numerics_check(self, settings: str, outcome: TrialOutcome) -> None:
        """Write the outcome of the numerics check of these settings."""
        self._enter(WritableNotes.numerics_checks, settings, outcome_to_json(outcome))

    def set_phase_seconds(self, phase: str, seconds: float) -> None:
        """Write the seconds of a phase, rounded to tenths."""
        self._enter(WritableNotes.phase_seconds, phase, round(seconds, 1))

    def add_phase_seconds(self, phase: str, seconds: float) -> None:
        """Add to the seconds of a phase."""
        with self._mutex.turn():
            self.set_phase_seconds(phase, self.phase_seconds.get(phase, 0.0) + seconds)

    def add_re_timings(self, trial: int, rates: Iterable[float]) -> None:
        """Add re-timings of the trial of that number, in samples per second."""
        with self._mutex.turn():
            before = self.re_timings.get(trial, ())
            self._enter(WritableNotes.re_timings, str(trial), [*before, *rates])

    def set_seconds_again(self, trial: int, seconds: float) -> None:
        """Write the seconds of one more timing of the trial of that number."""
        self._enter(WritableNotes.seconds_again, str(trial), round(seconds, 3))

    def set_matmul_rate(self, key: str, flops_per_second: float) -> None:
        """Write a rate of matrix products; `key` is as of `matmul_rate_key`."""
        self._enter(WritableNotes.matmul_rates, key, flops_per_second)

    def add_drift_check(self, worker: str, check: DriftCheck) -> None:
        """Add a drift check; `worker` is as for `drift_checks`."""
        key = WritableNotes.first_drift_checks.key + worker
        self.store(key, [*self.drift_checks(worker), check])

    @property
    def leader(self) -> Lease | None:
        """The process that measures the baseline and confirms; None if there was none."""
        return lease_of(self.attributes.get(LEADER))

    @leader.setter
    def leader(self, lease: Lease) -> None:
        self.store(LEADER, lease)

    @property
    def is_closed(self) -> bool:
        """True if no process may claim a trial any more."""
        return bool(self.attributes.get(CLOSED, False))

    @is_closed.setter
    def is_closed(self, closed: bool) -> None:
        self.store(CLOSED, closed)

    def _enter(self, note: Note[Any], key: str, value: Any) -> None:
        """Write one entry of a note that is a mapping."""
        with self._mutex.turn():
            self.store(note.key, {**(self.attributes.get(note.key) or {}), key: value})
