"""The settings as arguments of another library, with what is left to the caller."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from autotune.configuration.best_config import BestConfig
from autotune.export import FORMATS
from autotune.knobs.affinity import AFFINITY
from autotune.knobs.base import Knob, Value
from autotune.values.strict_yaml import parse


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments of another library."""

    values: dict[str, Any]
    left: list[str]
    """Settings that they lack, each with its value and what to do instead. Those that
    `Best.apply_to_process` sets are no part of it."""


def arguments_of(best: BestConfig, form: str) -> Arguments:
    """Return the settings in one of the forms that are YAML."""
    exported = FORMATS[form].render(best)
    of_process = {
        knob.name for knob, value in best.training_config.items() if _is_of_process(knob, value)
    }
    left = [text for name, text in exported.dropped.items() if name not in of_process]
    return Arguments(dict(parse(exported.text, form).value), left)


def _is_of_process(knob: Knob, value: Value) -> bool:
    """Return True if apply_to_process sets all of it, or the environment of this process has it."""
    if knob.name == AFFINITY.name:
        return AFFINITY.worker_init(value, None) is None
    if variables := knob.environ(value):
        return all(os.environ.get(name) == wanted for name, wanted in variables.items())
    return type(knob).on_process is not Knob.on_process
