"""Read search spaces from YAML files, strictly, and report every fault with its place."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.knobs import KNOBS
from autotune.knobs.base import Value
from autotune.knobs.older_names import RENAMED, fault_of_older, present_name, present_value
from autotune.values.errors import UsageError
from autotune.values.strict_yaml import Document, read
from autotune.values.text import did_you_mean

_WORDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "about": (lambda value: isinstance(value, str), "a sentence"),
    "portable": (lambda value: isinstance(value, bool), "true or false"),
    "trials": (lambda value: type(value) is int and value > 0, "a whole number above 0"),
    "seconds": (lambda value: type(value) is int and value > 0, "a whole number above 0"),
}
_DEFAULT_TRIALS = 40
_RANGE_KEYS = {"low", "high", "step", "log2"}
_MOST_VALUES = 1000


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
    document: Document


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
        if name in RENAMED:
            if fault := _fault_of_older(name, choice, document.value):
                faults.append(f"{document.key_position(name)}: {fault}")
            else:
                offers[present_name(name)] = tuple(present_value(name, v) for v in choice)
        elif name in KNOBS:
            offers[name] = _values(document, name, choice, faults)
        elif name not in _WORDS:
            hint = did_you_mean(name, [*KNOBS, *_WORDS])
            faults.append(f"{document.key_position(name)}: unknown knob {name!r}.{hint}")
    if faults:
        raise UsageError("\n".join(faults))
    written = document.value
    return SpaceFile(
        name=path.stem,
        about=written.get("about", ""),
        portable=written.get("portable", False),
        trials=written.get("trials", _DEFAULT_TRIALS),
        seconds=written.get("seconds"),
        offers=offers,
        document=document,
    )


def _fault_of_older(name: str, choice: Any, others: Mapping[str, Any]) -> str | None:
    if not isinstance(choice, list) or not choice:
        return f"{name} needs a list with at least one value; got {choice!r}."
    faults = (fault_of_older(name, value, others) for value in choice)
    return next((fault for fault in faults if fault), None)


def _values(document: Document, name: str, written: Any, faults: list[str]) -> tuple[Value, ...]:
    place = document.position(name)
    if isinstance(written, dict):
        return _range(document, name, written, faults)
    if not isinstance(written, list) or not written:
        faults.append(
            f"{place}: {name} needs a list with at least one value, or "
            f"{{low, high, step}} or {{low, high, log2: true}}; got {written!r}."
        )
        return ()
    seen: set[tuple[type, Value]] = set()
    for index, value in enumerate(written):
        fault = KNOBS[name].values.fault(value)
        if fault:
            faults.append(
                f"{document.position(name, index)}: {name}={value!r} is not possible; {fault}."
            )
        elif (type(value), value) in seen:
            faults.append(f"{document.position(name, index)}: {name}={value!r} stands twice.")
        else:
            seen.add((type(value), value))
    return tuple(written)


def _range(
    document: Document, name: str, written: dict[str, Any], faults: list[str]
) -> tuple[Value, ...]:
    place = document.position(name)
    for key in sorted(written.keys() - _RANGE_KEYS):
        hint = did_you_mean(key, _RANGE_KEYS)
        faults.append(f"{document.key_position(name, key)}: unknown word {key!r} in a range.{hint}")
    log2 = written.get("log2", False)
    bounds = [written.get("low"), written.get("high"), written.get("step", 1)]
    if not all(type(bound) is int for bound in bounds) or not isinstance(log2, bool):
        faults.append(f"{place}: {name} needs whole numbers low, high and step, or log2: true.")
        return ()
    if log2 and "step" in written:
        faults.append(f"{place}: {name} takes step or log2, not both.")
    low, high, step = bounds
    values = _expand(low, high, step, log2)
    if values is None:
        faults.append(
            f"{place}: {name} needs low <= high and step > 0 (low > 0 with log2), and at most "
            f"{_MOST_VALUES} values; got {written}."
        )
        return ()
    for value in (values[0], values[-1]):
        if fault := KNOBS[name].values.fault(value):
            faults.append(f"{place}: {name}={value} is not possible; {fault}.")
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
