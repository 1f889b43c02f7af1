"""Notes of a study: the facts that it holds, each with its type.

Its key is the attribute's name. `autotune.storage.leases` has those of facts about live processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar, overload

from pydantic import Field, FiniteFloat, NonNegativeInt, PositiveFloat, TypeAdapter

from autotune.knobs.base import Value
from autotune.storage.identity import Identity, StoredIdentity
from autotune.storage.note_types import (
    START,
    WHOLE,
    Answer,
    Confirmation,
    DriftCheck,
    Revocation,
    Seconds,
    StoredRun,
    Workers,
)
from autotune.values.measurement import Measurement
from autotune.values.outcome import Diagnosed, TrialOutcome, outcome_from_json

K = TypeVar("K")
T = TypeVar("T")


class _Writable(Protocol):
    def store(self, key: str, value: Any) -> None: ...


class Note(Generic[T]):
    """A note of some type. Its key on disk is its name; it reads as None if the study has none.

    Reading raises a ValueError if the fact on disk does not match the type.
    """

    def __init__(self, kind: Any) -> None:
        self.key = ""
        self._kind = kind

    def __set_name__(self, owner: type, name: str) -> None:
        self.key = name

    @overload
    def __get__(self, study: None, owner: type) -> Note[T]: ...
    @overload
    def __get__(self, study: StudyNotes, owner: type) -> T | None: ...
    def __get__(self, study: StudyNotes | None, owner: type) -> Note[T] | T | None:
        return self if study is None else self.read(study)

    def __set__(self, study: _Writable, value: T) -> None:
        study.store(self.key, value)

    def read(self, study: StudyNotes, worker: str = "") -> T | None:
        """Return the value of the study's note, or of one worker's; None without one.

        Raises:
            ValueError: the fact on disk does not match the type.
        """
        fact = study.attributes.get(self.key + worker)
        return None if fact is None else self.parse(fact)

    def parse(self, fact: Any) -> T:
        """Return the value of a fact on disk.

        Raises:
            ValueError: it does not match the type.
        """
        return self._adapter.validate_python(fact)

    @cached_property
    def _adapter(self) -> TypeAdapter[T]:
        return TypeAdapter(self._kind)


class Entries(Note[Mapping[K, T]], Generic[K, T]):
    """A note that is a mapping. It reads as an empty one if the study has none."""

    @overload
    def __get__(self, study: None, owner: type) -> Entries[K, T]: ...
    @overload
    def __get__(self, study: StudyNotes, owner: type) -> Mapping[K, T]: ...
    def __get__(self, study: StudyNotes | None, owner: type) -> Entries[K, T] | Mapping[K, T]:
        return self if study is None else self.read(study) or {}


def matmul_rate_key(fingerprint: str, number_format: str) -> str:
    """Return the key of a machine's rate of matrix products in a number format."""
    return f"{fingerprint} {number_format}"


class StudyNotes:
    """The notes of a study as typed values.

    A training equivalence is named by the text that equivalent trials have as their attribute
    `TRAINING_EQUIVALENT`.
    """

    constraint_names = Note[Sequence[str]](list[str])
    """Names of the constraints, in Optuna's order; every study of autotune's has them."""
    identity = Note[Identity](StoredIdentity)
    reference = Note[Mapping[str, Value]](dict[str, Value])
    """Settings in place of the baseline's, whose batch exceeds the memory limit; mostly None."""
    unit = Note[Literal["steps"]](Literal["steps"])
    """Set where a script's samples are unknown: each of its steps counts as one sample."""
    start_seconds = Note[float](Seconds)
    """Seconds that every trial is charged for the start of its process."""
    run_seconds = Note[float](Seconds)
    """Median seconds of a baseline process, from its request to its outcome."""
    baseline_runs = Note[tuple[Measurement, ...]](
        Annotated[tuple[StoredRun, ...], Field(min_length=1)]
    )
    """The baseline's processes, with which all claims and the diagnosis are compared."""
    phase_seconds = Entries[str, float](dict[str, Seconds])
    """Seconds of each phase besides the trials."""
    probe_samples = Note[int](NonNegativeInt)
    """Samples that every accuracy probe trains on."""
    seed_seconds = Note[float](Seconds)
    """Seconds of an accuracy seed of the baseline."""
    qualities = Entries[str, Sequence[float]](dict[str, list[FiniteFloat]])
    """Quality of each known seed, by training equivalence."""
    untrained = Note[float](FiniteFloat)
    """The baseline's held-out loss before training, where the allowed loss depends on it."""
    margins = Entries[str, float](dict[str, FiniteFloat])
    """Accuracy margin by training equivalence, as a constraint: at most 0 if it holds."""
    numerics_checks = Entries[str, str](dict[str, str])
    """Outcome of each numerics check as JSON, by its settings; see `numerics_check`."""
    first_drift_checks = Note[Sequence[DriftCheck]](list[DriftCheck])
    """Drift checks on the search's own device; see `drift_checks`."""
    revocations = Entries[str, Revocation](dict[str, Revocation])
    """Revocations, by training equivalence, or by the text of `alone` for a single trial."""
    diagnosis = Note[Diagnosed](Diagnosed)
    """The timed stages of the baseline."""
    matmul_rates = Entries[str, float](dict[str, PositiveFloat])
    """FLOP/s of matrix products, by machine and number format; see `matmul_rate_key`."""
    re_timings = Entries[int, Sequence[float]](dict[int, list[PositiveFloat]])
    """Samples per second of each re-timing, by the trial's number."""
    seconds_again = Entries[int, float](dict[int, Seconds])
    """Seconds of one more timing of a trial whose first one had a long step, by its number."""
    confirmation = Note[Confirmation](Confirmation)
    answer = Note[Answer](Answer)
    workers = Note[Workers](Workers)

    def __init__(self, attributes: Mapping[str, Any] | None = None) -> None:
        self._attributes = attributes or {}

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The study's attributes in Optuna, by key."""
        return self._attributes

    @property
    def is_of_autotune(self) -> bool:
        """True if autotune made the study."""
        return StudyNotes.constraint_names.key in self.attributes

    @property
    def rate_unit(self) -> str:
        """Unit of every throughput of the study."""
        return f"{self.unit or 'samples'}/s"

    @property
    def script_start(self) -> tuple[float, float] | None:
        """Seconds of the search and, of these, of the script's starts; None if not known."""
        noted = self.phase_seconds
        return (noted[WHOLE], noted[START]) if {WHOLE, START} <= noted.keys() else None

    def drift_checks(self, worker: str) -> Sequence[DriftCheck]:
        """Return the drift checks on one device.

        `worker` is the name of an extra device or worker; empty for the search's own device.
        """
        return StudyNotes.first_drift_checks.read(self, worker) or ()

    def numerics_check(self, settings: str) -> TrialOutcome | None:
        """Return the outcome of the numerics check of these settings; None if it was not run.

        An outcome in another version's format becomes `Lost`.
        """
        text = self.numerics_checks.get(settings)
        return None if text is None else outcome_from_json(text)


_NOTES = {note.key: note for note in vars(StudyNotes).values() if isinstance(note, Note)}


def check_fact(key: str, fact: Any) -> None:
    """Check a fact against the type of its note; unknown keys pass.

    Raises:
        ValueError: it does not match.
    """
    note = _NOTES.get(key.partition("@")[0])  # without the worker to which it belongs
    if note is not None:
        note.parse(fact)
