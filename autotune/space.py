"""A search space: for each knob the values to try, read from YAML and narrowed to a machine."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

from autotune.config import TrainingConfig
from autotune.errors import UsageError
from autotune.knobs import ALL_KNOBS, KNOBS
from autotune.knobs.base import Knob, Value, spelled
from autotune.machine import Machine
from autotune.strict_yaml import Document, read
from autotune.suggest import did_you_mean
from autotune.workload_facts import WorkloadFacts

_WORDS = ("about", "portable")
_RANGE_KEYS = {"low", "high", "step", "log2"}
_MOST_VALUES = 1000


@dataclass(frozen=True, slots=True)
class SpaceFile:
    """A search space as written, checked but not yet narrowed to a machine."""

    name: str
    about: str
    portable: bool
    """Values that a machine cannot run are dropped with a note instead of refused."""
    offers: Mapping[str, tuple[Value, ...]]
    document: Document


@dataclass(frozen=True)
class SearchSpace:
    """Knob name to the values it may take, for every knob; a frozen knob has one."""

    domains: Mapping[str, tuple[Value, ...]]
    notes: tuple[str, ...] = ()
    """What was dropped on the way to this machine, and why."""

    @cached_property
    def size(self) -> int:
        """Number of different configurations, counting knobs that are idle only once."""
        needed = {knob.needs for knob in ALL_KNOBS if knob.needs}
        free = math.prod(
            len(self.domains[knob.name])
            for knob in ALL_KNOBS
            if knob.needs is None and knob.name not in needed
        )
        return free * math.prod(self._size_with_dependents(name) for name in sorted(needed))

    def varied(self) -> dict[str, tuple[Value, ...]]:
        """The knobs that have a choice."""
        return {name: values for name, values in self.domains.items() if len(values) > 1}

    def configurations(self) -> Iterator[TrainingConfig]:
        """Every different configuration, once."""
        choices = itertools.product(*self.domains.values())
        settings = (dict(zip(self.domains, values, strict=True)) for values in choices)
        return iter(dict.fromkeys(map(TrainingConfig.of, settings)))

    def sample(self, random: Random) -> TrainingConfig:
        """A configuration drawn uniformly, knob by knob."""
        return TrainingConfig.of({name: random.choice(v) for name, v in self.domains.items()})

    def neighbours(self, config: TrainingConfig) -> Iterator[TrainingConfig]:
        """Every configuration that differs from `config` in one knob's setting."""
        for name, values in self.varied().items():
            for value in values:
                neighbour = config.replace(**{name: value})
                if neighbour != config:
                    yield neighbour

    def _size_with_dependents(self, needed: str) -> int:
        dependents = math.prod(
            len(self.domains[knob.name]) for knob in ALL_KNOBS if knob.needs == needed
        )
        return sum(dependents if value else 1 for value in self.domains[needed])


def shipped_spaces() -> dict[str, Path]:
    """Name to file of the search spaces that come with autotune."""
    package = Path(__file__).parent
    # Inside a wheel they lie in the package, in a checkout beside it.
    folder = next(
        f for f in (package / "search_spaces", package.parent / "search_spaces") if f.is_dir()
    )
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def find_space(name_or_path: str) -> Path:
    """The file of a shipped space, or the path itself where it is a file.

    Raises:
        UsageError: neither a file nor a shipped name.
    """
    shipped = shipped_spaces()
    if name_or_path in shipped:
        return shipped[name_or_path]
    if Path(name_or_path).exists() or name_or_path.endswith((".yaml", ".yml")):
        return Path(name_or_path)
    raise UsageError(
        f"--space {name_or_path!r} is neither a file nor one of {', '.join(shipped)}."
        f"{did_you_mean(name_or_path, shipped)}"
    )


def read_space(path: Path) -> SpaceFile:
    """Read a search space strictly.

    Raises:
        UsageError: everything that is wrong with the file, each with file:line:column.
    """
    document = read(path)
    faults: list[str] = []
    for word in _WORDS:
        kind = str if word == "about" else bool
        if not isinstance(document.value.get(word, kind()), kind):
            faults.append(f"{document.position(word)}: {word} must be a {kind.__name__}.")
    offers = {}
    for name, written in document.value.items():
        if name in _WORDS:
            continue
        if name not in KNOBS:
            hint = did_you_mean(name, [*KNOBS, *_WORDS])
            faults.append(f"{document.key_position(name)}: unknown knob {name!r}.{hint}")
            continue
        offers[name] = _values(document, name, written, faults)
    if faults:
        raise UsageError("\n".join(faults))
    value = document.value
    return SpaceFile(
        path.stem, value.get("about", ""), value.get("portable", False), offers, document
    )


def narrow(
    file: SpaceFile, machine: Machine, facts: WorkloadFacts | None, baseline: TrainingConfig
) -> SearchSpace:
    """The space that can be searched here; the baseline is always inside it.

    Raises:
        UsageError: the file is not portable and asks for what this machine cannot run.
    """
    faults: list[str] = []
    notes: list[str] = []
    domains: dict[str, tuple[Value, ...]] = {}
    for knob in ALL_KNOBS:
        offered = file.offers.get(knob.name, ())
        irrelevant = knob.irrelevance(facts) if facts and offered else None
        if irrelevant:
            notes.append(f"{knob.name} stays {spelled(baseline[knob.name])}: {irrelevant}")
            offered = ()
        kept = []
        for index, value in enumerate(offered):
            obstacle = knob.obstacle(value, machine)
            if obstacle and not file.portable:
                place = file.document.position(knob.name, index)
                faults.append(
                    f"{place}: {knob.name}={spelled(value)} is not possible on this machine; "
                    f"{obstacle}."
                )
            elif obstacle or (obstacle := _too_large(knob, value, facts)):
                notes.append(f"{knob.name}={spelled(value)} dropped: {obstacle}")
            else:
                kept.append(knob.resolve(value, machine))
        domains[knob.name] = _with_baseline(kept, baseline[knob.name], knob)
    if faults:
        raise UsageError("\n".join(faults))
    return SearchSpace(domains, tuple(notes))


def _too_large(knob: Knob, value: Value, facts: WorkloadFacts | None) -> str | None:
    if knob.name != "batch_size" or facts is None or facts.dataset_samples is None:
        return None
    if isinstance(value, int) and value > facts.dataset_samples:
        return f"the dataset has {facts.dataset_samples} samples"
    return None


def _with_baseline(kept: list[Value], baseline: Value, knob: Knob) -> tuple[Value, ...]:
    # An idle baseline (null while there are no workers) is no choice of its own.
    extra = [] if knob.needs and baseline == knob.idle and kept else [baseline]
    return tuple(dict.fromkeys([*kept, *(value for value in extra if value not in kept)]))


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
    for index, value in enumerate(written):
        fault = KNOBS[name].values.fault(value)
        if fault:
            faults.append(
                f"{document.position(name, index)}: {name}={value!r} is not possible; {fault}."
            )
        elif any(value is v or (type(value) is type(v) and value == v) for v in written[:index]):
            faults.append(f"{document.position(name, index)}: {name}={value!r} stands twice.")
    return tuple(written)


def _range(
    document: Document, name: str, written: dict[str, Any], faults: list[str]
) -> tuple[Value, ...]:
    place = document.position(name)
    for key in written.keys() - _RANGE_KEYS:
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
    """The values of a range in ascending order; None where there are none or too many."""
    if log2:
        if not 0 < low <= high:
            return None
        return tuple(low << n for n in range((high // low).bit_length()))
    if low > high or step < 1 or (high - low) // step >= _MOST_VALUES:
        return None
    return tuple(range(low, high + 1, step))
