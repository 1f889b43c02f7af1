"""A configuration: one checked value for each knob, hashable, in canonical form."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, get_args

from autotune.knobs import ALL_KNOBS, KNOBS, knob_named, own_fault
from autotune.knobs.base import Knob, Value, spelled
from autotune.knobs.own import Kind, name_to_read, own_knob
from autotune.values.errors import UsageError
from autotune.values.machine import Machine
from autotune.values.text import did_you_mean

LrRule = Literal["none", "linear", "sqrt"]
LR_RULES: tuple[LrRule, ...] = get_args(LrRule)
_MOST_LINEAR = 8.0
# Characters of a key; a database server keeps 512 of the name of an attribute.
_LONGEST_KEY = 400


def lr_factor(rule: LrRule, batch_size: int, baseline_batch_size: int) -> float:
    """Return the factor on every learning rate of the baseline."""
    ratio = batch_size / baseline_batch_size
    match rule:
        case "none":
            return 1.0
        case "linear":
            return min(ratio, _MOST_LINEAR)
        case "sqrt":
            return math.sqrt(ratio)


@dataclass(frozen=True)
class TrainingConfig:
    """One value per knob, in the order of `ALL_KNOBS`; equal settings are equal objects.

    A knob whose `needs` is off holds its `idle` value, so that configurations which run the same
    compare equal. Knobs of the user's own are held only where they are set.
    """

    values: tuple[Value, ...]
    own: tuple[tuple[str, Value], ...] = ()
    """Name and value of each knob of the user's own that is not null, by name."""

    @classmethod
    def of(cls, settings: Mapping[str, Value]) -> TrainingConfig:
        """Check `settings`, fill in defaults and bring the result into canonical form.

        Raises:
            UsageError: unknown settings or illegal values, all named at once.
        """
        check_settings(settings)
        return cls.of_checked(settings)

    @classmethod
    def of_checked(cls, settings: Mapping[str, Value]) -> TrainingConfig:
        """Return the configuration of settings that are known to be legal."""
        complete = {knob.name: settings.get(knob.name, knob.default) for knob in ALL_KNOBS}
        own = sorted((n, v) for n, v in settings.items() if n not in KNOBS and v is not None)
        return cls(tuple(_canonical(knob, complete) for knob in ALL_KNOBS), tuple(own))

    def __getitem__(self, name: str) -> Value:
        if name in _POSITION or own_knob(name) is None:
            return self.values[_POSITION[name]]
        return dict(self.own).get(name)

    def items(self) -> Iterator[tuple[Knob, Value]]:
        """Yield each knob with its value, those of the user's own last and only where set."""
        yield from zip(ALL_KNOBS, self.values, strict=True)
        yield from ((knob_named(name), value) for name, value in self.own)

    def is_idle(self, knob: Knob) -> bool:
        """Return True if another knob's value keeps a knob from having an effect."""
        return knob.needs is not None and not self[knob.needs]

    def as_dict(self) -> dict[str, Value]:
        """Return knob name to value, ready for JSON or YAML.

        Knobs of several processes are left out where they have their default.
        """
        return {
            knob.name: value
            for knob, value in self.items()
            if not (knob.of_ranks and value == knob.default)
        }

    def every(self) -> dict[str, Value]:
        """Return knob name to value of every knob, those of several processes included."""
        return {knob.name: value for knob, value in self.items()}

    def of_kind(self, kind: Kind) -> dict[str, Value]:
        """Return the user's own knobs of a kind: variable, flag or argument to value."""
        return own_of_kind(dict(self.own), kind)

    def replace(self, **changes: Value) -> TrainingConfig:
        """Return the configuration with some knobs changed.

        Raises:
            UsageError: unknown settings or illegal values, all named at once.
        """
        check_settings(changes)
        return TrainingConfig.of_checked({**self.as_dict(), **changes})

    def resolved(self, machine: Machine) -> TrainingConfig:
        """Return the configuration with PyTorch's automatic defaults spelled out for `machine`."""
        return TrainingConfig.of(
            {knob.name: knob.resolve(value, machine) for knob, value in self.items()}
        )

    @property
    def alone(self) -> TrainingConfig:
        """The settings of one process: those of several have their defaults."""
        ranks = {knob.name: knob.default for knob in ALL_KNOBS if knob.of_ranks}
        return TrainingConfig.of_checked({**self.as_dict(), **ranks})

    @property
    def effective_batch(self) -> int:
        """Samples of an optimizer step: batch_size x accumulation_steps."""
        return int(self["batch_size"] or 1) * int(self["accumulation_steps"] or 1)

    def differences(self, other: TrainingConfig) -> dict[str, Value]:
        """Return the settings of this configuration that differ from those of `other`."""
        names = dict.fromkeys((*self.as_dict(), *other.as_dict()))
        return {name: self[name] for name in names if self[name] != other[name]}

    def quality_key(self) -> str:
        """Return the settings that can change the trained model, as text.

        Configurations with the same key share one accuracy probe. Knobs of the user's own count,
        since a configuration does not know their effects.
        """
        return self.note_key(knob.name for knob, _ in self.items() if knob.effect != "exact")

    def departures(self, other: TrainingConfig) -> frozenset[tuple[str, Value]]:
        """Return what changes the course of training from `other`'s, except the batch size.

        Rounding is no part of it. Knobs of the user's own are, as in `quality_key`.
        """
        names = dict.fromkeys((*_COURSE, *(name for name, _ in (*self.own, *other.own))))
        return frozenset((name, self[name]) for name in names if self[name] != other[name])

    def note_key(self, names: Iterable[str]) -> str:
        """Return the settings of these knobs as a text by which a study keeps its notes.

        It names those that differ from their default. A long text ends with a digest.
        """
        changed = {name: self[name] for name in names if self[name] != knob_named(name).default}
        text = render(changed) or "defaults"
        if len(text) <= _LONGEST_KEY:
            return text
        return f"{text[:_LONGEST_KEY]}... {sha256(text.encode()).hexdigest()[:16]}"


BATCH_KNOBS = ("batch_size", "accumulation_steps")
"""Knobs whose product is the effective batch."""
PRECISION = ("amp_dtype", "float32_matmul_precision", "ddp_comm_dtype")
"""Knobs of numerics that lower the precision; the others reorder the same arithmetic."""
_COURSE = tuple(
    knob.name
    for knob in ALL_KNOBS
    if knob.name in PRECISION or (knob.effect == "statistics" and knob.name != "batch_size")
)
_POSITION = {knob.name: position for position, knob in enumerate(ALL_KNOBS)}


def check_settings(settings: Mapping[str, object]) -> None:
    """Check names and values.

    Raises:
        UsageError: unknown settings or illegal values, all named at once.
    """
    if faults := setting_faults(settings):
        raise UsageError("\n".join(faults.values()))


def setting_faults(settings: Mapping[str, object]) -> dict[str, str]:
    """Return setting name to its fault, for unknown names and illegal values."""
    faults = {}
    for name, value in settings.items():
        if name not in KNOBS and own_knob(name) is None:
            faults[name] = f"unknown setting {name!r}.{did_you_mean(name, KNOBS)}"
        elif name not in KNOBS and (fault := own_fault(name)):
            faults[name] = f"{name}: {fault}."
        elif fault := knob_named(name).values.fault(value):
            faults[name] = f"{name}={value!r} is not possible; {fault}."
    return faults


def own_of_kind(settings: Mapping[str, Value], kind: Kind) -> dict[str, Value]:
    """Return those of the user's own knobs in `settings` that are of a kind and not null."""
    return {
        name.removeprefix(f"{kind}."): value
        for name, value in settings.items()
        if name.startswith(f"{kind}.") and value is not None
    }


def with_own(names: Iterable[str], configs: Iterable[TrainingConfig]) -> tuple[str, ...]:
    """Return `names` and the user's own knobs that any of the configurations sets."""
    own = sorted({name for config in configs for name, _ in config.own})
    return tuple(dict.fromkeys((*names, *own)))


def environ_of(config: TrainingConfig) -> dict[str, str]:
    """Return the environment variables that a process needs at its start to run `config`."""
    found = (pair for knob, value in config.items() for pair in knob.environ(value).items())
    return {name_to_read(name): value for name, value in found}


def render(settings: Mapping[str, Value]) -> str:
    """Return settings on one line, as the command line spells them."""
    return ", ".join(f"{name}={spelled(value)}" for name, value in settings.items())


def _canonical(knob: Knob, complete: Mapping[str, Value]) -> Value:
    value = complete[knob.name]
    if knob.needs is None:
        return value
    if not complete[knob.needs]:
        return knob.idle
    return knob.default if value is None else value
