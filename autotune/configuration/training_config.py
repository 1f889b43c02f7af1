"""A configuration: one checked value for each knob, hashable, in canonical form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autotune.knobs import ALL_KNOBS, KNOBS
from autotune.knobs.base import Knob, Value, spelled
from autotune.knobs.older_names import RENAMED, fault_of_older, note_key, present
from autotune.values.errors import UsageError
from autotune.values.machine import Machine
from autotune.values.text import did_you_mean


@dataclass(frozen=True)
class TrainingConfig:
    """One value per knob, in the order of `ALL_KNOBS`; equal settings are equal objects.

    A knob whose `needs` is off holds its `idle` value, so that configurations which run the same
    compare equal.
    """

    values: tuple[Value, ...]

    @classmethod
    def of(cls, settings: Mapping[str, Value]) -> TrainingConfig:
        """Check `settings`, fill in defaults and bring the result into canonical form.

        Knobs may have the names of earlier versions.

        Raises:
            UsageError: unknown knobs or illegal values, all named at once.
        """
        faults = setting_faults(settings)
        if faults:
            raise UsageError("\n".join(faults.values()))
        settings = present(settings)
        complete = {knob.name: settings.get(knob.name, knob.default) for knob in ALL_KNOBS}
        return cls(tuple(_canonical(knob, complete) for knob in ALL_KNOBS))

    def __getitem__(self, name: str) -> Value:
        return self.values[_POSITION[name]]

    def as_dict(self) -> dict[str, Value]:
        """Return knob name to value, ready for JSON or YAML."""
        return dict(zip(_POSITION, self.values, strict=True))

    def replace(self, **changes: Value) -> TrainingConfig:
        """Return the configuration with some knobs changed."""
        return TrainingConfig.of({**self.as_dict(), **present(changes)})

    def resolved(self, machine: Machine) -> TrainingConfig:
        """Return the configuration with PyTorch's automatic defaults spelled out for `machine`."""
        return TrainingConfig.of(
            {knob.name: knob.resolve(self[knob.name], machine) for knob in ALL_KNOBS}
        )

    @property
    def effective_batch(self) -> int:
        """Samples of an optimizer step: batch_size x accumulation_steps."""
        return int(self["batch_size"] or 1) * int(self["accumulation_steps"] or 1)

    def differences(self, other: TrainingConfig) -> dict[str, Value]:
        """Return the settings of this configuration that differ from those of `other`."""
        mine = self.as_dict()
        return {name: value for name, value in mine.items() if value != other[name]}

    def quality_key(self) -> str:
        """Return the settings that can change the trained model, as text.

        Configurations with the same key share one accuracy probe.
        """
        return self.note_key(knob.name for knob in ALL_KNOBS if knob.effect != "exact")

    def note_key(self, names: Iterable[str]) -> str:
        """Return the settings of these knobs as a text by which a study keeps its notes."""
        return note_key((name, self[name], KNOBS[name].default) for name in names)


BATCH_KNOBS = ("batch_size", "accumulation_steps")
"""Knobs whose product is the effective batch."""
_POSITION = {knob.name: position for position, knob in enumerate(ALL_KNOBS)}


def setting_faults(settings: Mapping[str, object]) -> dict[str, str]:
    """Return setting name to its fault, for unknown names and illegal values."""
    faults = {}
    for name, value in settings.items():
        if name in RENAMED:
            if fault := fault_of_older(name, value, settings):
                faults[name] = fault
        elif name not in KNOBS:
            faults[name] = f"unknown knob {name!r}.{did_you_mean(name, KNOBS)}"
        elif fault := KNOBS[name].values.fault(value):
            faults[name] = f"{name}={value!r} is not possible; {fault}."
    return faults


def environ_of(config: TrainingConfig) -> dict[str, str]:
    """Return the environment variables that a process needs at its start to run `config`."""
    return {
        name: value for knob in ALL_KNOBS for name, value in knob.environ(config[knob.name]).items()
    }


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
