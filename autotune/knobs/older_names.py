"""Knobs in files of earlier versions: renamed ones, and texts that notes are found by.

A knob is renamed by an entry of `RENAMED`. Everything that reads settings passes through here.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from autotune.knobs.base import OneOf, Value, spelled


@dataclass(frozen=True, slots=True)
class Renamed:
    """A knob's present name, and the present value for each of the older ones."""

    name: str
    values: Mapping[str, Value]
    """Older value, as YAML spells it, to the present one."""


RENAMED = {"fused_optimizer": Renamed("optimizer_impl", {"false": None, "true": "fused"})}
"""Older name of a knob to what it is now."""
# Keys of a study's notes name these even at their defaults, as those of the first version did.
_ALWAYS_NAMED = frozenset(
    {
        "batch_size",
        "amp_dtype",
        "float32_matmul_precision",
        "compile_mode",
        "channels_last",
        "cudnn_benchmark",
        "optimizer_impl",
    }
)


def present_name(name: str) -> str:
    """Return a knob's present name; any other name stays as it is."""
    return RENAMED[name].name if name in RENAMED else name


def present_value(name: str, value: Any) -> Any:
    """Return the present value for the `value` of a knob by its older name.

    A value that the knob never had stays as it is: see `fault_of_older`.
    """
    known = RENAMED[name].values if name in RENAMED and isinstance(value, bool) else {}
    return known.get(spelled(value), value)


def present(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with present names and values; see `fault_of_older` for those with both."""
    return {present_name(name): present_value(name, value) for name, value in settings.items()}


def fault_of_older(name: str, value: object, others: Container[str]) -> str | None:
    """Return the fault of a setting by its older name, or None.

    `others` are the names of all settings.
    """
    now = RENAMED[name].name
    if now in others:
        return f"{name} is the older name of {now}, which is set as well; leave it out."
    fault = OneOf((False, True)).fault(value)
    return fault and f"{name}={value!r} is not possible; {fault}. It is called {now} now."


def note_key(settings: Iterable[tuple[str, Value, Value]]) -> str:
    """Return settings, given with their defaults, as a text by which a study keeps its notes.

    The text is that of earlier versions wherever later knobs have their defaults, so that a study
    which an earlier version began finds its notes.
    """
    parts = (
        _in_older_words(name, value)
        for name, value, default in settings
        if name in _ALWAYS_NAMED or value != default
    )
    return ",".join(f"{name}={spelled(value)}" for name, value in parts)


def _in_older_words(name: str, value: Value) -> tuple[str, Value]:
    for older, renamed in RENAMED.items():
        for text, now in renamed.values.items():
            if renamed.name == name and now == value:
                return older, text
    return name, value
