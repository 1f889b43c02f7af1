"""A configuration: one checked value for each knob, hashable, in one canonical form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.errors import UsageError
from autotune.knobs import ALL_KNOBS, KNOBS
from autotune.knobs.base import Knob, Value, spelled
from autotune.machine import Machine
from autotune.suggest import did_you_mean


@dataclass(frozen=True)
class TrainingConfig:
    """One value per knob, in the order of `ALL_KNOBS`; equal settings are equal objects.

    A knob whose `needs` is off holds its `idle` value, so that two configurations which would run
    the same are the same.
    """

    values: tuple[Value, ...]

    @classmethod
    def of(cls, settings: Mapping[str, Value]) -> TrainingConfig:
        """Check `settings`, fill in defaults and bring the result into canonical form.

        Raises:
            UsageError: unknown knobs or illegal values, all named at once.
        """
        faults = setting_faults(settings)
        if faults:
            raise UsageError("\n".join(faults.values()))
        complete = {knob.name: settings.get(knob.name, knob.default) for knob in ALL_KNOBS}
        return cls(tuple(_canonical(knob, complete) for knob in ALL_KNOBS))

    def __getitem__(self, name: str) -> Value:
        return self.values[_POSITION[name]]

    def as_dict(self) -> dict[str, Value]:
        """Knob name to value, ready for JSON or YAML."""
        return dict(zip(_POSITION, self.values, strict=True))

    def replace(self, **changes: Value) -> TrainingConfig:
        """The same configuration with some knobs changed."""
        return TrainingConfig.of({**self.as_dict(), **changes})

    def resolved(self, machine: Machine) -> TrainingConfig:
        """With every "whatever PyTorch takes" replaced by what that is on `machine`."""
        return TrainingConfig.of(
            {knob.name: knob.resolve(self[knob.name], machine) for knob in ALL_KNOBS}
        )

    def differences(self, other: TrainingConfig) -> dict[str, Value]:
        """The settings of this configuration that `other` does not share."""
        mine = self.as_dict()
        return {name: value for name, value in mine.items() if value != other[name]}

    def quality_key(self) -> str:
        """What of this configuration can change the trained model, as text.

        Two configurations with the same key need one accuracy probe between them.
        """
        return ",".join(
            f"{knob.name}={spelled(self[knob.name])}"
            for knob in ALL_KNOBS
            if knob.effect != "exact"
        )


_POSITION = {knob.name: position for position, knob in enumerate(ALL_KNOBS)}


def setting_faults(settings: Mapping[str, object]) -> dict[str, str]:
    """Setting name to what is wrong with it, for unknown names and illegal values."""
    faults = {}
    for name, value in settings.items():
        if name not in KNOBS:
            faults[name] = f"unknown knob {name!r}.{did_you_mean(name, KNOBS)}"
        elif fault := KNOBS[name].values.fault(value):
            faults[name] = f"{name}={value!r} is not possible; {fault}."
    return faults


def environ_of(config: TrainingConfig) -> dict[str, str]:
    """Environment variables that a process must be started with to run under `config`."""
    return {
        name: value for knob in ALL_KNOBS for name, value in knob.environ(config[knob.name]).items()
    }


def render(settings: Mapping[str, Value]) -> str:
    """Settings on one line, as people write them on a command line."""
    return ", ".join(f"{name}={spelled(value)}" for name, value in settings.items())


def _canonical(knob: Knob, complete: Mapping[str, Value]) -> Value:
    value = complete[knob.name]
    if knob.needs is None:
        return value
    if not complete[knob.needs]:
        return knob.idle
    return knob.default if value is None else value
