"""The answer in forms that other tools read. Lossless or loud: what a form cannot carry is named.

To add a form, write a function from configuration and learning rate factor to text and name it in
`FORMATS`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass

from autotune.best import BestConfig
from autotune.config import TrainingConfig, environ_of
from autotune.knobs import ALL_KNOBS

# What model.py's learning rates are to be multiplied by; left out where that is 1.
_LR_FACTOR = "lr_factor"


@dataclass(frozen=True, slots=True)
class Exported:
    """A text, and what it does not carry."""

    text: str
    dropped: tuple[str, ...]


def to_env(config: TrainingConfig, lr_factor: float) -> Exported:
    """Environment variables for a shell; PyTorch reads few of its settings from there."""
    lines = []
    if config["num_threads"] is not None:
        lines.append(f"export OMP_NUM_THREADS={shlex.quote(str(config['num_threads']))}")
    lines += [f"export {name}={shlex.quote(v)}" for name, v in environ_of(config).items()]
    carried = {"num_threads", *(k.name for k in ALL_KNOBS if k.environ(config[k.name]))}
    if config["compile_mode"] is None:
        lines.append("export TORCH_COMPILE_DISABLE=1")
        carried.add("compile_mode")
    rate = () if lr_factor == 1 else (_LR_FACTOR,)
    return Exported("\n".join(lines) + "\n", _not_carried(config, carried) + rate)


def to_python(config: TrainingConfig, lr_factor: float) -> Exported:
    """A Python module with the settings as a literal, which carries them all."""
    body = "".join(f"    {name!r}: {value!r},\n" for name, value in config.as_dict().items())
    rate = "" if lr_factor == 1 else f"{_LR_FACTOR.upper()} = {lr_factor!r}\n"
    return Exported(f"SETTINGS = {{\n{body}}}\n{rate}", ())


def to_json(config: TrainingConfig, lr_factor: float) -> Exported:
    """One JSON object, which carries them all."""
    rate = {} if lr_factor == 1 else {_LR_FACTOR: lr_factor}
    return Exported(json.dumps({**config.as_dict(), **rate}, indent=2) + "\n", ())


FORMATS: dict[str, Callable[[TrainingConfig, float], Exported]] = {
    "env": to_env,
    "json": to_json,
    "python": to_python,
}


def export(best: BestConfig, form: str) -> Exported:
    """The configuration of `best` in one of `FORMATS`."""
    return FORMATS[form](best.training_config, best.lr_scaling.factor)


def _not_carried(config: TrainingConfig, carried: set[str]) -> tuple[str, ...]:
    """Knobs with a setting of their own that a form has no word for."""
    different = config.differences(TrainingConfig.of({}))
    return tuple(name for name in different if name not in carried)
