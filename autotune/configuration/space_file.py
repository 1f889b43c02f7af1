"""Read search spaces from YAML files, strictly, and report every fault with its place."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import KNOBS, knob_named, own_fault
from autotune.knobs.base import Effect, Value
from autotune.knobs.own import ALLOCATOR, KINDS, OLDER_ALLOCATOR
from autotune.values.errors import UsageError
from autotune.values.machine import Machine
from autotune.values.strict_yaml import Document, Place, read
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
    places: dict[str, Place] = field(default_factory=dict)
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
    if {f"env.{ALLOCATOR}", f"env.{OLDER_ALLOCATOR}"} <= own.offers.keys():
        faults.append(
            f"{document.key_position('env', OLDER_ALLOCATOR)}: {OLDER_ALLOCATOR} is the older name "
            f"of {ALLOCATOR}, which is written by the name that torch reads; keep {ALLOCATOR}."
        )
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
    if fault := _clash(place[1], offers):
        yield f"{document.position(*own.places[name])}: {name}: {fault}."
    own.offers[name], own.effects[name] = offers, effect
    if today is not None:
        own.baseline[name] = today


def _clash(word: str, offers: Sequence[Value]) -> str | None:
    """Return why values cannot stand side by side, or None."""
    kinds = {type(value) for value in offers if value is not None}
    if word.startswith("-") and bool in kinds and len(kinds) > 1:
        return "true and false switch a flag on and off, so that it takes no other values"
    if len(set(offers)) < len({(type(value), value) for value in offers}):
        return "true equals 1 and false equals 0 in Python; keep one of the two"
    return None


def read_values(
    document: Document, place: Place, name: str, written: Any, faults: list[str]
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
    seen: set[tuple[type, Value]] = set()
    sound = []
    for index, value in enumerate(written):
        fault = knob_named(name).values.fault(value)
        if fault:
            where = document.position(*place, index)
            faults.append(f"{where}: {name}={value!r} is not possible; {fault}.")
        elif (type(value), value) in seen:
            faults.append(f"{document.position(*place, index)}: {name}={value!r} stands twice.")
        else:
            seen.add((type(value), value))
            sound.append(value)
    return tuple(sound)


def _range(
    document: Document, place: Place, name: str, written: dict[str, Any], faults: list[str]
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
    values = _expand(low, high, step, log2)
    if values is None:
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


def _expand(low: int, high: int, step: int, log2: bool) -> tuple[int, ...] | None:
    """Return the values of a range in ascending order; None if there are none or too many."""
    if log2:
        if not 0 < low <= high:
            return None
        return tuple(low << n for n in range((high // low).bit_length()))
    if low > high or step < 1 or (high - low) // step >= _MOST_VALUES:
        return None
    return tuple(range(low, high + 1, step))


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
    package = Path(__file__).parents[1]
    # A wheel has them in the package, a checkout beside it.
    folder = next(
        f for f in (package / "search_spaces", package.parent / "search_spaces") if f.is_dir()
    )
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def find_space(name_or_path: str) -> Path:
    """Return the file of a shipped space, or the path itself.

    Raises:
        UsageError: neither a file nor a shipped name.
    """
    shipped = shipped_spaces()
    if name_or_path in shipped:
        return shipped[name_or_path]
    if name_or_path.endswith((".yaml", ".yml")) or os.path.exists(name_or_path):  # noqa: PTH110
        return Path(name_or_path)
    raise UsageError(
        f"--space {name_or_path!r} is neither a file nor one of {', '.join(shipped)}."
        f"{did_you_mean(name_or_path, shipped)}"
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
            faults.append(f"{document.key_position(name)}: unknown knob {name!r}.{hint}")
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
