"""Facts of a study and of its trials, which a search stores in Optuna, each with its type.

Finished trials are read here, too, with what became known of their accuracy afterwards.

A fact of a study is an attribute of it: a whole value under its name, or one attribute for each
entry of a mapping, so that several processes may add entries. A search relies on these facts, so
what another program wrote, or a disk has damaged, is refused when it is read. The identity is the
fact that must not change between the runs of a study.
"""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from statistics import fmean
from typing import Annotated, Any, Generic, TypeVar

from optuna.trial import FrozenTrial
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    FiniteFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
    ValidationError,
)
from pydantic.dataclasses import dataclass as checked

from autotune.configuration.best_config import BestConfig
from autotune.configuration.constraints import CONSTRAINTS, UNKNOWN, VALUE, Verdict
from autotune.configuration.search_space import SearchSpace, whole_space
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.base import Effect, Value
from autotune.values.errors import StudyMismatchError, UsageError
from autotune.values.measurement import Measurement
from autotune.values.outcome import Diagnosed, TrialOutcome
from autotune.values.statistics import Decision
from autotune.values.text import fault_of, readable

T = TypeVar("T")
Seconds = Annotated[FiniteFloat, Field(ge=0)]
Rate = Annotated[FiniteFloat, Field(ge=0)]
_JSON = TypeAdapter(Any, config=ConfigDict(ser_json_inf_nan="constants"))

ACCURACY, DIAGNOSIS = "accuracy", "diagnosis"
"""Phases whose seconds a study keeps: the baseline's first seed, and the stages."""
WHOLE = "search"
"""Also kept so: the runs of the search that came to their end."""
OWN = "own"
"""Name of the search's own device in keys of facts."""

CONFIG, REASON = "config", "reason"
"""Attributes of a trial: its configuration, and the reason of its verdict; see also `VALUE`."""
NOT_NEEDED = "not needed"
"""Reason of a trial that was begun though another process ran the same, or enough of them."""
DETAILS = "details"
"""Attribute of a trial with those of its details that have no attribute of their own."""
CONSTRAINTS_ATTRIBUTE = "constraints"
"""System attribute of a trial with its margins. Optuna's samplers and the dashboard's release 0.21
both read it; the dashboard ignores constraints from `Trial.set_constraint`."""
FORMAT = 5
"""Number of the form in which a study is stored; others are not read."""
ALIKE = 0.01
"""Relative difference up to which two memory limits count as one machine's."""
_LONGEST = 60
# Facts that a study has only as digests, in words; modules that the file imports have their name.
_HASHED = {
    "model_sha256": "the contents of the file that trains",
    "script.arguments_sha256": "the script's arguments or maps",
    "argument_files_sha256": "the contents of the config files that the arguments name",
}
_MODULES = "modules"  # whose entries are paths
_DIGEST = re.compile(r"(None|[0-9a-f]{64}){2}")


@dataclass(frozen=True)
class _Known:
    """Facts of an identity that have an attribute."""

    baseline: dict[str, Value] = field(default_factory=dict)
    space: dict[str, list[Value]] = field(default_factory=dict)
    effects: dict[str, Effect] = field(default_factory=dict)
    memory_limit_bytes: PositiveInt = 1
    effective_batch: PositiveInt | None = None


def _checked(facts: dict[str, Any]) -> dict[str, Any]:
    TypeAdapter(_Known).validate_python(facts)
    return facts


@dataclass(frozen=True)
class Identity:
    """The facts for which a study was made, which must not change between its runs.

    Facts that are only compared have no attribute.
    """

    facts: Annotated[dict[str, Any], AfterValidator(_checked)] = field(default_factory=dict)

    @property
    def baseline(self) -> TrainingConfig:
        """The user's settings."""
        return TrainingConfig.of(self.facts["baseline"])

    @property
    def space(self) -> SearchSpace | None:
        """The search space before the diagnosis; None if it is not known."""
        domains = self.facts.get("space")
        if domains is None:
            return None
        baseline = TrainingConfig.of(self.facts.get("baseline", {}))
        held, effects = self.facts.get("effective_batch"), self.facts.get("effects", {})
        return SearchSpace(whole_space(domains, baseline), (), held, effects)

    @property
    def memory_limit_bytes(self) -> int | None:
        """Memory limit of every trial; None if it is not known."""
        return self.facts.get("memory_limit_bytes")

    @property
    def objective(self) -> str:
        """Name of the objective, with the samples of the run if it is the time of a run."""
        return str(self.facts.get("objective", "throughput"))

    @property
    def unit(self) -> str:
        """The unit of throughput: samples, or steps where a script's samples are unknown."""
        return str(self.facts.get("unit", "samples"))


def differences(known: Mapping[str, Any], identity: Mapping[str, Any]) -> list[str]:
    """Return a line for each fact that differs between the study and now, or is only in one."""
    now = json.loads(json.dumps(identity))
    return [
        f"  {line}"
        for name in {**now, **known}
        if not _is_same(name, known.get(name), now.get(name))
        for line in _told(name, known.get(name), now.get(name))
    ]


def _told(name: str, known: Any, now: Any) -> Iterator[str]:
    """Yield lines on a fact that differs: of a mapping, on its entries that do."""
    if isinstance(known, dict) and isinstance(now, dict):
        for key in {**now, **known}:
            if known.get(key) != now.get(key):
                told = key if name == _MODULES else f"{name}.{key}"
                yield from _told(told, known.get(key), now.get(key))
    elif _DIGEST.fullmatch(f"{known}{now}"):
        yield f"{_HASHED.get(name, name)}: not those of the study"
    else:
        yield f"{name}: {_short(known)} in the study, {_short(now)} now"


def _is_same(name: str, known: Any, now: Any) -> bool:
    """Compare two values; memory limits may differ by `ALIKE`, as they do from boot to boot."""
    if name == "memory_limit_bytes" and isinstance(known, int) and isinstance(now, int):
        return math.isclose(known, now, rel_tol=ALIKE)
    return bool(known == now)


def _short(fact: Any) -> str:
    text = json.dumps(fact)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


@dataclass(frozen=True)
class DriftCheck:
    """A drift check: the baseline's samples/s after a number of trials."""

    trials: NonNegativeInt
    samples_per_second: Rate


@dataclass(frozen=True)
class CandidateLog:
    """The outcome of a candidate of the confirmation."""

    ratios: tuple[float, ...] | None = None
    """Worth over the baseline's in each round of its test; None without any."""
    ci95: tuple[float, float] | None = None
    """The 95 % interval of the ratio."""
    disturbed: NonNegativeInt | None = None
    """Disturbed rounds that count; None if there are none, or if not known."""
    refused: str | None = None
    """Reason why it was refused."""


@dataclass(frozen=True)
class Confirmation:
    """A confirmation: its seconds, and the outcome of each candidate by its trial's number."""

    seconds: Seconds
    candidates: Mapping[NonNegativeInt, CandidateLog]
    baseline_rates: tuple[Rate, ...] = ()
    """The baseline's samples/s in each round that counts."""


def _best(fact: Any) -> BestConfig:
    return BestConfig.model_validate_json(json.dumps(fact))


@dataclass(frozen=True)
class Answer:
    """A result: the content of best.yaml after a number of trials."""

    trials: NonNegativeInt
    best: Annotated[BestConfig, BeforeValidator(_best)]


@dataclass(frozen=True)
class Plan:
    """The options with which workers judge trials, and the number of trials."""

    options: Mapping[str, Any]
    trials: PositiveInt
    open: bool = True
    """False once no process may begin a trial any more."""


def _observed(run: Measurement) -> Measurement:
    if run.nonsense:
        raise ValueError(run.nonsense)
    return run


class Fact(Generic[T]):
    """A stored value under its name, None if the study has none.

    Reading raises a ValueError if its type is wrong.
    """

    def __init__(self, kind: Any, key: str = "") -> None:
        self.key = key
        self._kind = kind

    def __set_name__(self, owner: type, name: str) -> None:
        self.key = self.key or name

    def __get__(self, study: StudyFacts, owner: type) -> T:
        return study.parsed(self)

    def __set__(self, study: StudyFacts, value: T) -> None:
        study.store(self.key, value)

    def read(self, study: StudyFacts) -> T:
        """Return what the study has."""
        fact = study.attributes.get(self.key)
        found: T = None if fact is None else self.adapter.validate_python(fact)  # type: ignore[assignment]
        return found

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        """Checks the type."""
        return TypeAdapter(self._kind)


class Entries(Fact[MutableMapping[str, T]]):
    """A mapping whose entries are attributes `KEY:NAME`; setting one writes it."""

    def read(self, study: StudyFacts) -> MutableMapping[str, T]:
        """Return the entries."""
        start = f"{self.key}:"
        found = {
            name.removeprefix(start): self.adapter.validate_python(fact)
            for name, fact in study.attributes.items()
            if name.startswith(start)
        }
        return _Written(found, lambda key, value: study.store(f"{start}{key}", value))


class _Written(dict[str, T]):
    """Entries as they were read; one that is set is written, and there when they are read again."""

    def __init__(self, entries: Mapping[str, T], write: Callable[[str, T], None]) -> None:
        super().__init__(entries)
        self._write = write

    def __setitem__(self, key: str, value: T) -> None:
        self._write(key, value)


class StudyFacts:
    """The facts of a study as typed values.

    They are read from the storage once, and again by `refresh` where other processes write. A
    training is named by the text that equivalent trials have as their attribute `training`.
    """

    identity = Fact[Identity | None](Identity)
    plan = Fact[Plan | None](Plan)
    """Only where several processes may work on the study."""
    start_seconds = Fact[float | None](Seconds)
    """Seconds that every trial is charged for the start of its process."""
    run_seconds = Fact[float | None](Seconds)
    """Median seconds of a baseline process, from its request to its outcome."""
    baseline_runs = Fact[tuple[Measurement, ...] | None](
        Annotated[
            tuple[Annotated[Measurement, AfterValidator(_observed)], ...], Field(min_length=1)
        ]
    )
    """The baseline's processes, with which all claims and the diagnosis are compared."""
    diagnosis = Fact[Diagnosed | None](Diagnosed)
    """The timed stages of the baseline."""
    probe_samples = Fact[int | None](NonNegativeInt)
    """Samples that every accuracy probe trains on."""
    seed_seconds = Fact[float | None](Seconds)
    """Seconds of an accuracy seed of the baseline."""
    untrained = Fact[float | None](FiniteFloat)
    """The baseline's held-out loss before training, where the allowed loss depends on it."""
    confirmation = Fact[Confirmation | None](Confirmation)
    answer = Fact[Answer | None](Answer)
    qualities = Entries[Sequence[float]](list[FiniteFloat], "seeds")
    """Quality of each known seed, by training."""
    loss_to_reach = Fact[float | None](FiniteFloat)
    """Smoothed training loss to reach, where that is the objective and no loss was given."""
    needed = Entries[Sequence[float]](list[FiniteFloat], "to_loss")
    """Samples of each known seed until it reached the loss, by training."""
    numerics_checks = Entries[TrialOutcome](Annotated[TrialOutcome, Discriminator("kind")], "check")
    """Outcome of each numerical check, by its settings."""
    matmul_rates = Entries[float](PositiveFloat, "rate")
    """FLOP/s of the machine's matrix products, by number format."""
    drift_checks = Entries[Sequence[DriftCheck]](list[DriftCheck], "drift")
    """Drift checks by device: `OWN`, or the name of an extra device or worker."""
    phase_seconds = Entries[float](Seconds, "seconds")
    """Seconds of each phase besides the trials."""

    def __init__(
        self,
        attributes: Mapping[str, Any] | None = None,
        write: Callable[[str, Any], None] | None = None,
    ) -> None:
        """Take a study's attributes in Optuna, and a function that writes one; None: only read."""
        self.attributes: Mapping[str, Any] = attributes or {}
        """The study's attributes in Optuna, by key."""
        self._write = write
        self._parsed: dict[str, Any] = {}
        self._lock = threading.RLock()

    def refresh(self, read: Callable[[], Mapping[str, Any]]) -> None:
        """Take the attributes that the storage has now, from `read`."""
        with self._lock:  # no other thread writes between reading and taking
            self.attributes, self._parsed = read(), {}

    def store(self, key: str, value: Any) -> None:
        """Write an attribute as JSON, unless it is there already."""
        fact = _JSON.dump_python(value, mode="json")
        with self._lock:
            if self.attributes.get(key) == fact:
                return
            assert self._write is not None, "these facts are only read"
            self._write(key, fact)
            self.attributes = {**self.attributes, key: fact}
            self._parsed.pop(key.partition(":")[0], None)

    def parsed(self, fact: Fact[T]) -> T:
        """Return what a fact reads from the attributes, once for each change of them.

        Raises:
            ValueError: an attribute does not match its type.
        """
        with self._lock:
            if fact.key not in self._parsed:
                self._parsed[fact.key] = fact.read(self)
            found: T = self._parsed[fact.key]
            return found

    def check(self) -> None:
        """Read every fact.

        Raises:
            StudyMismatchError: one does not match its type; the message names it.
        """
        for one in vars(StudyFacts).values():
            if not isinstance(one, Fact):
                continue
            try:
                one.read(self)
            except (ValueError, UsageError) as error:
                fault = fault_of(error) if isinstance(error, ValueError) else str(error)
                raise StudyMismatchError(
                    f"the study's fact {one.key!r} is not what this version of autotune writes: "
                    f"{fault}. Give this search another --study NAME, or restore the study from "
                    "its backup."
                ) from error

    @property
    def rate_unit(self) -> str:
        """Unit of every throughput of the study."""
        return "samples/s" if self.identity is None else f"{self.identity.unit}/s"


_SHOWN = ("samples_per_second", "peak_memory_bytes", "quality", "training", "assumed_samples")
"""Details with an attribute of their own, for readers of Optuna Dashboard's table."""


@checked(frozen=True, config=ConfigDict(strict=True))
class TrialDetails:
    """Facts about a finished trial. None where a fact is unknown, or a trial was not timed."""

    outcome: str | None = None
    """Kind of the trial's outcome, such as measured or out_of_memory."""
    seconds: float | None = None
    """Seconds of the whole trial, its accuracy probes included; of all the baseline's processes."""
    foreseen: bool = False
    """True if the trial was not run, because its batches would not fit into /dev/shm."""
    not_applied: str | None = None
    """Knob whose value did not take effect."""
    samples_per_second: float | None = None
    """Throughput as measured, not corrected for drift."""
    peak_memory_bytes: int | None = None
    """Peak memory in bytes."""
    stored_measurement: Mapping[str, Any] | None = None
    """Fields of `measurement` as JSON values, exact."""
    timing_seconds: float | None = None
    """Seconds from the start of the timing process to its end; of the baseline, the median."""
    quality: float | None = None
    """Mean quality over the accuracy seeds; None if it was not measured."""
    seeds_decided: Decision | None = None
    """Decision on its training by the seeds drawn until it was stored; None if there were none."""
    assumed_samples: int | None = None
    """Samples to a loss that its value assumes, the fewest as a rule; None if seeds told them, or
    if a loss is not the objective."""
    training: str | None = None
    """Text that trials of equivalent training share: the settings that can change the model."""

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> TrialDetails:
        """Read the attributes of a trial; unknown ones are ignored.

        Raises:
            ValueError: one has another type.
        """
        found = {**dict(attributes.get(DETAILS, {})), **attributes}
        try:
            return cls(**{name: found[name] for name in _NAMES if found.get(name) is not None})
        except ValidationError as error:
            raise ValueError(fault_of(error)) from None

    def as_attributes(self) -> dict[str, Any]:
        """Return the known facts as attributes, in JSON values."""
        parts = {name: getattr(self, name) for name in _NAMES}
        known = {
            name: value for name, value in parts.items() if value is not None and value is not False
        }
        shown = {name: known.pop(name) for name in _SHOWN if name in known}
        attributes: dict[str, Any] = _JSON.dump_python({**shown, DETAILS: known}, mode="json")
        return attributes

    @cached_property
    def measurement(self) -> Measurement | None:
        """The timing, block by block; None if there is none or it is not readable."""
        try:
            return _measurement().validate_python(self.stored_measurement)
        except ValidationError:
            return None


_NAMES = tuple(one.name for one in fields(TrialDetails))


@cache
def _measurement() -> TypeAdapter[Measurement]:
    return TypeAdapter(Measurement)


@dataclass(frozen=True, slots=True)
class FinishedTrial:
    """One trial with a verdict."""

    number: int
    config: TrainingConfig
    verdict: Verdict
    details: TrialDetails


def finished_trial(trial: FrozenTrial) -> FinishedTrial:
    """Convert and check a finished trial of Optuna's.

    Raises:
        StudyMismatchError: another program told it.
    """
    attributes = trial.user_attrs
    try:
        told = zip(CONSTRAINTS, trial.constraints.values(), strict=True)
        margins = {name: float(margin) for name, margin in told}
        value, reason = attributes[VALUE], str(attributes[REASON])
        verdict = Verdict(None if value is None else float(value), margins, reason)
        if not all(map(math.isfinite, (*margins.values(), verdict.value or 0.0))):
            raise ValueError("a number is not finite")
        config = TrainingConfig.of(dict(attributes[CONFIG]))
        details = TrialDetails.of(attributes)
    except (KeyError, ValueError, TypeError, AttributeError, UsageError) as error:
        raise StudyMismatchError(
            f"trial {trial.number} of the study was not written by this version of autotune "
            f"({error}). Give this search another --study NAME."
        ) from error
    return FinishedTrial(trial.number, config, verdict, details)


def as_known(trial: FinishedTrial, facts: StudyFacts) -> FinishedTrial:
    """Return the trial with the mean quality over all seeds, those drawn since included."""
    qualities = facts.qualities.get(str(trial.details.training))
    # A trial whose accuracy was never judged gets no quality.
    if not (qualities and trial.verdict.feasible and trial.verdict.margins["accuracy"] != UNKNOWN):
        return trial
    return replace(trial, details=replace(trial.details, quality=readable(fmean(qualities))))


def best_feasible(trials: Iterable[FinishedTrial]) -> FinishedTrial | None:
    """Return the feasible trial with the highest value; None if there is none."""
    feasible = (t for t in trials if t.verdict.feasible and t.verdict.value is not None)
    return max(feasible, key=lambda t: t.verdict.value or 0.0, default=None)
