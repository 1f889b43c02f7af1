"""Read search spaces from YAML files, strictly, and report every fault with its place."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.configuration.space_values import OwnKnobs, read_own_knobs, read_values
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import KNOBS
from autotune.knobs.base import Value
from autotune.knobs.own import KINDS
from autotune.values.errors import UsageError
from autotune.values.machine import Machine
from autotune.values.strict_yaml import Document, read
from autotune.values.text import did_you_mean

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
