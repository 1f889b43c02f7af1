"""Search spaces: read strictly from YAML files, then narrowed to this machine and workload.

Every fault of a file is reported with its place.
"""

from __future__ import annotations

import itertools
import math
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from autotune.configuration.training_config import BATCH_KNOBS, TrainingConfig
from autotune.knobs import ALL_KNOBS, KNOBS, knob_named, own_fault
from autotune.knobs.base import Effect, Knob, Value, spelled
from autotune.knobs.own import KINDS
from autotune.values.errors import UsageError
from autotune.values.machine import Machine
from autotune.values.outcome import WorkloadFacts
from autotune.values.strict_yaml import Document, KeyPath, read, shipped
from autotune.values.text import did_you_mean

_RANGE_KEYS = {"low", "high", "step", "log2"}
_OWN_KEYS = {"values", "effect", "baseline"}
_MOST_VALUES = 1000
_EFFECTS: tuple[Effect, ...] = get_args(Effect)


@dataclass(frozen=True, slots=True)
class OwnKnobs:
    """Knobs of the user's own as a space file gives them, by name."""

    offers: dict[str, tuple[Value, ...]] = field(default_factory=dict)
    effects: dict[str, Effect] = field(default_factory=dict)
    """Effect of each; numerics where the file says none."""
    baseline: dict[str, Value] = field(default_factory=dict)
    """Values of today, where the file says them."""
    places: dict[str, KeyPath] = field(default_factory=dict)
    """Place in the document of each knob's values."""


def read_own_knobs(document: Document, faults: list[str]) -> OwnKnobs:
    """Read the section of each kind, such as env; add what is wrong to `faults`."""
    own = OwnKnobs()
    for kind in KINDS:
        section = document.value.get(kind, {})
        if not isinstance(section, dict):
            faults.append(
                f"{document.position(kind)}: {kind} needs names, each with its values; "
                f"got {section!r}."
            )
            continue
        for word, written in section.items():
            if fault := own_fault(f"{kind}.{word}"):
                faults.append(f"{document.key_position(kind, word)}: {fault}.")
            else:
                faults.extend(_read_own_knob(own, document, (kind, word), written))
    return own


def _read_own_knob(
    own: OwnKnobs, document: Document, place: tuple[str, str], written: Any
) -> Iterator[str]:
    """Add a knob of the user's own to `own`; yield what is wrong with it."""
    name, faults = ".".join(place), list[str]()
    given = dict(written) if isinstance(written, dict) else {}
    effect, today = given.pop("effect", "numerics"), given.pop("baseline", None)
    own.places[name] = (*place, "values") if "values" in given else place
    listed = given.pop("values", given if isinstance(written, dict) else written)
    offers = read_values(document, own.places[name], name, listed, faults)
    yield from faults
    if listed is not given:
        for word in given:
            hint = did_you_mean(word, _OWN_KEYS)
            yield f"{document.key_position(*place, word)}: unknown word {word!r}.{hint}"
    if effect not in _EFFECTS:
        where, words = document.position(*place, "effect"), ", ".join(_EFFECTS)
        yield f"{where}: {name}: effect must be one of {words}, not {effect!r}."
    if fault := knob_named(name).values.fault(today):
        yield f"{document.position(*place, 'baseline')}: {name}={today!r} is not possible; {fault}."
    kinds = {type(value) for value in offers if value is not None}
    if place[1].startswith("-") and bool in kinds and len(kinds) > 1:
        yield (
            f"{document.position(*own.places[name])}: {name}: true and false switch a flag on and "
            "off, so it takes no other values."
        )
    own.offers[name], own.effects[name] = offers, effect
    if today is not None:
        own.baseline[name] = today


def read_values(
    document: Document, place: KeyPath, name: str, written: Any, faults: list[str]
) -> tuple[Value, ...]:
    """Return the values that a place of the document gives a knob; add faults to `faults`."""
    if isinstance(written, dict):
        return _range(document, place, name, written, faults)
    where = document.position(*place)
    if not isinstance(written, list) or not written:
        faults.append(
            f"{where}: {name} needs a list with at least one value, or "
            f"{{low, high, step}} or {{low, high, log2: true}}; got {written!r}."
        )
        return ()
    sound = dict[Value, None]()
    for index, value in enumerate(written):
        where = document.position(*place, index)
        if fault := knob_named(name).values.fault(value):
            faults.append(f"{where}: {name}={value!r} is not possible; {fault}.")
        elif value in sound:  # in Python true equals 1
            faults.append(f"{where}: {name}={value!r} is listed twice.")
        else:
            sound[value] = None
    return tuple(sound)


def _range(
    document: Document, place: KeyPath, name: str, written: dict[str, Any], faults: list[str]
) -> tuple[Value, ...]:
    where = document.position(*place)
    for key in sorted(written.keys() - _RANGE_KEYS):
        hint = did_you_mean(key, _RANGE_KEYS)
        faults.append(
            f"{document.key_position(*place, key)}: unknown word {key!r} in a range.{hint}"
        )
    log2 = written.get("log2", False)
    bounds = [written.get("low"), written.get("high"), written.get("step", 1)]
    if not all(type(bound) is int for bound in bounds) or not isinstance(log2, bool):
        faults.append(f"{where}: {name} needs whole numbers low, high and step, or log2: true.")
        return ()
    if log2 and "step" in written:
        faults.append(f"{where}: {name} takes step or log2, not both.")
    low, high, step = bounds
    values: tuple[int, ...] = ()
    if log2 and 0 < low <= high:
        values = tuple(low << n for n in range((high // low).bit_length()))
    elif not log2 and step > 0:
        values = tuple(range(low, high + 1, step)[: _MOST_VALUES + 1])
    if not 0 < len(values) <= _MOST_VALUES:
        faults.append(
            f"{where}: {name} needs low <= high and step > 0 (low > 0 with log2), and at most "
            f"{_MOST_VALUES} values; got {written}."
        )
        return ()
    for value in (values[0], values[-1]):
        if fault := knob_named(name).values.fault(value):
            faults.append(f"{where}: {name}={value} is not possible; {fault}.")
            break
    return values


_WORDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "about": (lambda value: isinstance(value, str), "a sentence"),
    "portable": (lambda value: isinstance(value, bool), "true or false"),
    "trials": (lambda value: type(value) is int and value > 0, "a whole number above 0"),
    "seconds": (lambda value: type(value) is int and value > 0, "a whole number above 0"),
    "first": (
        lambda value: isinstance(value, str) and value in shipped_spaces(),
        "the name of a shipped space",
    ),
}
_DEFAULT_TRIALS = 40


@dataclass(frozen=True, slots=True)
class SpaceFile:
    """A search space as written: checked, not yet narrowed to a machine."""

    name: str
    about: str
    portable: bool
    """True: drop values that a machine cannot run, with a note. False: refuse them."""
    trials: int
    """Default number of trials."""
    seconds: int | None
    """Default time budget in seconds; None: no limit."""
    offers: Mapping[str, tuple[Value, ...]]
    """Values of each knob that is named, those of the user's own last."""
    own: OwnKnobs
    """Knobs of the user's own."""
    document: Document
    first: SpaceFile | None = None
    """Space whose values are tried first, for its own seconds or trials; None: all at once."""

    def position(self, name: str, index: int | None = None) -> str:
        """Return file:line:column of a knob, or of one of its values."""
        place = self.own.places.get(name, (name,))
        return self.document.position(*place, *(() if index is None else (index,)))

    def without(self, names: Collection[str]) -> SpaceFile:
        """Return the space without these knobs, which keep the user's values.

        Raises:
            UsageError: it does not offer one of them.
        """
        faults = [
            f"--without {name}: the search space {self.name} does not vary it. Name one of "
            f"{', '.join(self.offers)}.{did_you_mean(name, self.offers)}"
            for name in names
            if name not in self.offers
        ]
        if faults:
            raise UsageError("\n".join(faults))
        offers, own = (
            {name: values for name, values in every.items() if name not in names}
            for every in (self.offers, self.own.offers)
        )
        return replace(self, offers=offers, own=replace(self.own, offers=own))


@dataclass(frozen=True, slots=True)
class Beginning:
    """The part of a search space that is tried first, and for how long."""

    offers: Mapping[str, tuple[Value, ...]]
    """Values of each knob; all of the space for a knob that is not named."""
    trials: int
    """Trials, the baseline included, after which the whole space is tried."""
    seconds: float
    """Seconds of the search after which it is."""


def beginning_of(
    file: SpaceFile, machine: Machine, baseline: TrainingConfig, effective_batch: int | None
) -> Beginning | None:
    """Return the values of the space that a file names as its first, with the baseline's."""
    if (first := file.first) is None:
        return None
    offers = {
        name: (
            baseline[name],
            *(knob.resolve(value, machine) for value in first.offers.get(name, ())),
        )
        for name, knob in KNOBS.items()
        if name != "batch_size" or effective_batch is None  # its divisors are in no file
    }
    return Beginning(offers, first.trials, first.seconds or math.inf)


def shipped_spaces() -> dict[str, Path]:
    """Return name to file of the shipped search spaces."""
    return shipped("search_spaces")


def find_space(name_or_path: str) -> Path:
    """Return the file of a shipped space, or the path itself.

    Raises:
        UsageError: neither a file nor a shipped name.
    """
    known = shipped_spaces()
    if name_or_path in known:
        return known[name_or_path]
    if name_or_path.endswith((".yaml", ".yml")) or os.path.exists(name_or_path):  # noqa: PTH110
        return Path(name_or_path)
    raise UsageError(
        f"--space {name_or_path!r} is neither a file nor one of {', '.join(known)}."
        f"{did_you_mean(name_or_path, known)}"
    )


def read_space(path: Path) -> SpaceFile:
    """Read a search space strictly.

    Raises:
        UsageError: every fault of the file, each with file:line:column.
    """
    document = read(path)
    faults: list[str] = []
    for word, (is_legal, meaning) in _WORDS.items():
        value = document.value.get(word)
        if word in document.value and not is_legal(value):
            faults.append(f"{document.position(word)}: {word} must be {meaning}, not {value!r}.")
    offers = {}
    for name, choice in document.value.items():
        if name in KNOBS:
            offers[name] = read_values(document, (name,), name, choice, faults)
        elif name not in _WORDS and name not in KINDS:
            hint = did_you_mean(name, [*KNOBS, *_WORDS, *KINDS])
            faults.append(f"{document.key_position(name)}: unknown setting {name!r}.{hint}")
    own = read_own_knobs(document, faults)
    if faults:
        raise UsageError("\n".join(faults))
    written = document.value
    return SpaceFile(
        name=path.stem,
        about=written.get("about", ""),
        portable=written.get("portable", False),
        trials=written.get("trials", _DEFAULT_TRIALS),
        seconds=written.get("seconds"),
        offers={**offers, **own.offers},
        own=own,
        document=document,
        first=read_space(find_space(written["first"])) if "first" in written else None,
    )


EffectiveBatch = Literal["free", "keep"] | int
"""Samples of an optimizer step: any number, the baseline's, or this one."""


# Domain of a knob that is newer than a recorded space.
_ONE: tuple[Value, ...] = (None,)
# Divisors that an error names, the largest ones.
_MOST_DIVISORS = 12


@dataclass(frozen=True)
class SearchSpace:
    """Knob name to the values it may take, for every knob; a frozen knob has one."""

    domains: Mapping[str, tuple[Value, ...]]
    notes: tuple[str, ...] = ()
    """Remarks on values and knobs that were dropped for this machine, with reasons."""
    effective_batch: int | None = None
    """Samples of every optimizer step, from which accumulation_steps follows; None: they vary."""
    effects: Mapping[str, Effect] = field(default_factory=dict)
    """Effects of the user's own knobs, by name."""
    beginning: Beginning | None = None
    """Part of the space that is tried first; None: all at once."""
    batch_rates: Mapping[Value, float] = field(default_factory=dict)
    """Samples per second to expect of each batch size by the diagnosis; empty if unknown."""
    launch_seconds: float | None = None
    """Seconds to launch the kernels of a step in full precision; None: no GPU, or not known."""
    paying_threads: int = 1
    """Threads up to which each is expected to make a step faster, by the diagnosis; 1: none is."""

    def effect(self, name: str) -> Effect:
        """Return the effect of a knob on the trained model."""
        return self.effects.get(name, knob_named(name).effect)

    @cached_property
    def size(self) -> int:
        """Return the number of different configurations; an idle knob counts once."""
        needed = {knob.needs for knob in ALL_KNOBS if knob.needs}
        free = math.prod(
            len(values)
            for name, values in self.domains.items()
            if knob_named(name).needs is None and name not in needed
        )
        return free * math.prod(self._size_with_dependents(name) for name in sorted(needed))

    @property
    def effective_batches(self) -> list[int]:
        """Samples that an optimizer step may have."""
        if self.effective_batch is not None:
            return [self.effective_batch]
        sizes, counts = (self.domains.get(name, (1,)) for name in BATCH_KNOBS)
        return sorted({int(size or 1) * int(count or 1) for size in sizes for count in counts})

    def config(self, chosen: Mapping[str, Value]) -> TrainingConfig:
        """Return the configuration with these values; a knob without one has its domain's first.

        The values are not checked, since a sampler asks for thousands: see `check_settings`.
        """
        settings = {name: values[0] for name, values in self.domains.items()} | dict(chosen)
        if self.effective_batch is not None:
            batches = self.effective_batch // int(settings["batch_size"] or 1)
            settings["accumulation_steps"] = max(1, batches)
        return TrainingConfig.of_checked(settings)

    @property
    def first(self) -> SearchSpace:
        """The part of the space that is tried first; all of it without a beginning."""
        if self.beginning is None:
            return self
        offers = self.beginning.offers
        domains = {
            name: tuple(value for value in values if value in offers.get(name, values)) or values
            for name, values in self.domains.items()
        }
        return replace(self, domains=domains, beginning=None)

    def noted(self, notes: Iterable[str]) -> SearchSpace:
        """Return the space with further notes."""
        return replace(self, notes=(*self.notes, *notes))

    def varied(self) -> dict[str, tuple[Value, ...]]:
        """Return the knobs with more than one value."""
        return {name: values for name, values in self.domains.items() if len(values) > 1}

    def configurations(self) -> Iterator[TrainingConfig]:
        """Yield every different configuration once."""
        return iter(self._all)

    def within(self, config: TrainingConfig) -> TrainingConfig:
        """Return `config` with each value outside of its domain replaced by the nearest one."""
        return self.config({n: nearest(config[n], v) for n, v in self.domains.items()})

    def neighbours(self, config: TrainingConfig) -> Iterator[TrainingConfig]:
        """Yield every configuration that differs from `config` in one knob's setting."""
        for name, values in self.varied().items():
            for value in values:
                neighbour = self.config({**config.as_dict(), name: value})
                if neighbour != config:
                    yield neighbour

    @cached_property
    def _all(self) -> tuple[TrainingConfig, ...]:
        choices = itertools.product(*self.domains.values())
        settings = (dict(zip(self.domains, values, strict=True)) for values in choices)
        return tuple(dict.fromkeys(map(self.config, settings)))

    def _size_with_dependents(self, needed: str) -> int:
        dependents = [knob for knob in ALL_KNOBS if knob.needs == needed]
        return sum(
            math.prod(len(self.domains.get(k.name, _ONE)) for k in dependents) if value else 1
            for value in self.domains.get(needed, _ONE)
        )


def nearest(value: Value, domain: Sequence[Value]) -> Value:
    """Return the number that is off by the smallest factor; else the first value."""
    if value in domain:
        return value
    numbers = [v for v in domain if type(v) is int and v >= 0]
    if type(value) is not int or value < 0 or not numbers:
        return domain[0]
    return min(numbers, key=lambda number: abs(math.log2((1 + number) / (1 + value))))


def whole_space(
    domains: Mapping[str, Sequence[Value]], baseline: TrainingConfig
) -> dict[str, tuple[Value, ...]]:
    """Return the values of every knob, given those of some; the others have the baseline's."""
    known = {name: tuple(values) for name, values in domains.items()}
    return {**{name: (baseline[name],) for name in KNOBS}, **known}


def narrow(
    file: SpaceFile,
    machine: Machine,
    facts: WorkloadFacts | None,
    baseline: TrainingConfig,
    effective_batch: int | None = None,
) -> SearchSpace:
    """Return the part of a space that can be searched here; the baseline is in it.

    With an `effective_batch`, it has only configurations whose optimizer steps are of so many
    samples. The baseline's may be of another number.

    Raises:
        UsageError: the file is not portable and has values that this machine cannot run, or no
            batch size divides `effective_batch`.
    """
    faults, notes = list[str](), list[str]()
    domains: dict[str, tuple[Value, ...]] = {}
    own = dict.fromkeys((*file.own.offers, *dict(baseline.own)))
    for knob in map(knob_named, (*KNOBS, *own)):
        offered = file.offers.get(knob.name, ())
        varies = not {*offered} <= {baseline[knob.name]}
        if irrelevant := varies and _irrelevance(knob, file, machine, facts, baseline):
            notes.append(f"{knob.name} stays {spelled(baseline[knob.name])}: {irrelevant}")
            offered = ()
        if knob.needs is not None and not any(domains[knob.needs]):
            offered = ()  # what it needs stays off
        kept, dropped = list[Value](), defaultdict[str, list[str]](list)
        for index, value in enumerate(offered):
            spelling, obstacle = f"{knob.name}={spelled(value)}", knob.obstacle(value, machine)
            if obstacle and not file.portable:
                at = file.position(knob.name, index)
                faults.append(f"{at}: {spelling} is not possible on this machine; {obstacle}.")
            elif obstacle := obstacle or _excluded(knob, value, facts, baseline):
                dropped[obstacle].append(spelled(value))
            else:
                kept.append(knob.resolve(value, machine))
        notes += [f"{knob.name}={', '.join(dropped[why])} dropped: {why}" for why in dropped]
        # The baseline's value of an idle knob (null without workers) is no value to try.
        idle = baseline.is_idle(knob) and kept
        domains[knob.name] = tuple(dict.fromkeys(kept if idle else [*kept, baseline[knob.name]]))
    if faults:
        raise UsageError("\n".join(faults))
    if effective_batch is not None:
        sizes = _dividing(file, domains, facts, baseline, effective_batch)
        domains |= {"batch_size": sizes, "accumulation_steps": (effective_batch // sizes[0],)}
        notes += _kept(effective_batch, sizes, sorted(_named(file) - {*sizes}))
    first = beginning_of(file, machine, baseline, effective_batch)
    effects: dict[str, Effect] = {name: file.own.effects.get(name, "numerics") for name in own}
    return SearchSpace(domains, tuple(notes), effective_batch, effects, first)


def _irrelevance(
    knob: Knob,
    file: SpaceFile,
    machine: Machine,
    facts: WorkloadFacts | None,
    baseline: TrainingConfig,
) -> str | None:
    """Return why no value of a knob matters, as for a switch that is on but has no effect."""
    if facts and (found := knob.irrelevance(facts)):
        return found
    is_on = file.portable and baseline[knob.name] is True
    return knob.obstacle(True, machine) if is_on else None


def _dividing(
    file: SpaceFile,
    domains: Mapping[str, tuple[Value, ...]],
    facts: WorkloadFacts | None,
    baseline: TrainingConfig,
    effective_batch: int,
) -> tuple[int, ...]:
    """Return the batch sizes, in ascending order, that divide an effective batch.

    A portable file that varies the batch size gets multiples of the baseline's, up to eight times
    as much, and its halves, down to an eighth: they fit where memory is short.

    Raises:
        UsageError: there is none, or the dataset is smaller.
    """
    offered = {int(size or 1) for size in domains["batch_size"]}
    if file.portable and "batch_size" in file.offers and len(offered) > 1:
        own = int(baseline["batch_size"] or 1)
        offered |= {own * times for times in range(2, 9)}
        offered |= {own // parts for parts in (2, 4, 8) if own % parts == 0}
    legal, counts = KNOBS["accumulation_steps"].values, domains["accumulation_steps"]
    is_any = file.portable or "accumulation_steps" not in file.offers
    fitting = [
        size
        for size in sorted(offered)
        if effective_batch % size == 0
        and not legal.fault(effective_batch // size)
        and (is_any or effective_batch // size in counts)
    ]
    samples = None if facts is None else facts.dataset_samples
    if samples is not None and effective_batch > samples:
        raise UsageError(
            f"--effective-batch {effective_batch}: the dataset has {samples} samples. Give fewer."
        )
    named = _named(file)
    if not fitting or (named and not named & {*fitting}):
        raise UsageError(_no_divisor(file, sorted(offered - {*fitting}), effective_batch))
    return tuple(fitting)


def _named(file: SpaceFile) -> set[int]:
    """Return the batch sizes that a file names for its own workload; none of a portable one."""
    return set() if file.portable else {int(n or 1) for n in file.offers.get("batch_size", ())}


def _no_divisor(file: SpaceFile, offered: Sequence[int], effective_batch: int) -> str:
    small = [n for n in range(1, math.isqrt(effective_batch) + 1) if effective_batch % n == 0]
    divisors = sorted({*small, *(effective_batch // n for n in small)})
    shown = ", ".join(map(str, divisors[-_MOST_DIVISORS:]))
    place = file.document.position("batch_size") if "batch_size" in file.offers else file.name
    least = offered[0] * math.ceil(effective_batch / offered[0])
    return (
        f"{place}: --effective-batch: no batch_size of {', '.join(map(str, offered))} times "
        f"accumulation_steps gives {effective_batch} in each process. Its divisors are {shown}: "
        "add one of them as a batch_size. Or give --effective-batch free, or a multiple of "
        f"{offered[0]}, such as {least}."
    )


def _kept(effective_batch: int, sizes: Sequence[int], others: Sequence[int]) -> Iterator[str]:
    pairs = ", ".join(f"{size} x {effective_batch // size}" for size in sizes)
    yield f"effective batch {effective_batch}: batch_size x accumulation_steps is {pairs}"
    if others:
        dropped = ", ".join(map(str, others))
        yield f"batch_size={dropped} dropped: not a divisor of the effective batch"


def _excluded(
    knob: Knob, value: Value, facts: WorkloadFacts | None, baseline: TrainingConfig
) -> str | None:
    """Return why a value that could run here is not tried, or None."""
    must_repeat = baseline["deterministic"] and value != baseline[knob.name]
    if must_repeat and (reason := knob.nondeterminism(value)):
        return f"not deterministic: {reason}"
    return knob.exclusion(value, facts) if facts else None
