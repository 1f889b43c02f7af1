"""Read the values of a search space's knobs: lists, ranges, sections of the user's own knobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from autotune.knobs import knob_named, own_fault
from autotune.knobs.base import Effect, Value
from autotune.knobs.own import ALLOCATOR, KINDS, OLDER_ALLOCATOR
from autotune.values.strict_yaml import Document, Place
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
