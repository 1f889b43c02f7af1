"""Parts of several forms of a result: the settings left out, several processes, words of DDP."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from autotune.configuration.best_config import BestConfig
from autotune.configuration.script import with_flags
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import KNOBS
from autotune.knobs.base import Value, spelled
from autotune.knobs.ranks import DDP_ARGUMENTS

LR_FACTOR = "lr_factor"
"""Name of the factor on model.py's learning rates; left out if the factor is 1."""
PROCESSES = "processes"
"""Name under which a form says that it cannot start the processes."""
_FORMATS: dict[Value, str] = {"bfloat16": "BF16", "float16": "FP16"}
# Defaults of other tools' readers that differ from the knob's: a DataLoader's batch size.
_LEFT_ALONE: dict[str, Value] = {"batch_size": 1}


@dataclass(frozen=True, slots=True)
class Exported:
    """A text, with the settings that it does not carry."""

    text: str
    dropped: Mapping[str, str] = field(default_factory=dict)
    """Names of settings left out, each with its value and what to do instead."""
    use: str = ""
    """Instruction to use the text."""


def left_out(
    best: BestConfig,
    carried: Collection[str],
    in_force: Mapping[str, Value] | None = None,
    instead: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the settings that a form cannot carry, each with what to do instead.

    Args:
        best: the result.
        carried: knobs that the form carries, and "processes" if it starts several.
        in_force: settings that the form's reader makes itself, unlike PyTorch's defaults.
        instead: what to do about a knob. Default: PyTorch's own call.
    """
    config, ways = best.training_config, instead or {}
    own = {**_LEFT_ALONE, **(in_force or {})}
    dropped = {
        knob.name: f"{knob.name}={spelled(value)}: {ways.get(knob.name, knob.call)}"
        for knob, value in config.items()
        if knob.name not in carried
        and not config.is_idle(knob)
        and value != own.get(knob.name, knob.default)
    }
    if best.processes is not None and PROCESSES not in carried:
        way = f"start the training by torchrun --nproc-per-node {best.processes}"
        dropped[PROCESSES] = f"{PROCESSES}={best.processes}: {way}"
    factor = best.lr_scaling.factor
    if factor != 1 and LR_FACTOR not in carried:
        dropped[LR_FACTOR] = f"{LR_FACTOR}={factor:g}: multiply your learning rates by it"
    return dropped


def own_words(best: BestConfig) -> list[str]:
    """Return the words that add the user's own flags to a script's arguments, at their end."""
    return list(with_flags((), (), best.training_config))


def carried_flags(best: BestConfig) -> list[str]:
    """Return the user's own flags that such words carry: they cannot take a switch away."""
    flags = best.training_config.of_kind("flags")
    return [name for name, value in flags.items() if value is not False or name[:1] != "-"]


def is_half_on_cpu(best: BestConfig) -> bool:
    """Return True for float16 on a CPU, which Accelerate refuses and Lightning replaces."""
    return best.machine.device == "cpu" and best.config.get("amp_dtype") == "float16"


def ddp_arguments(config: TrainingConfig) -> dict[str, Any]:
    """Return the arguments of DistributedDataParallel that are not its defaults.

    There are none for a sharded model, which it does not wrap.
    """
    return {
        argument: config[knob]
        for knob, argument in DDP_ARGUMENTS.items()
        if config[knob] != KNOBS[knob].default and not config.is_idle(KNOBS[knob])
    }


def handler_fields(config: TrainingConfig) -> dict[str, tuple[str, str]]:
    """Return knob to the field of DistributedDataParallelKwargs that has it, and the field's code.

    Those at DistributedDataParallel's defaults are left out.
    """
    arguments = ddp_arguments(config).items()
    knobs = {argument: knob for knob, argument in DDP_ARGUMENTS.items()}
    found = {knobs[name]: (name, repr(value)) for name, value in arguments}
    dtype = config["ddp_comm_dtype"]
    if dtype is not None and not config.is_idle(KNOBS["ddp_comm_dtype"]):
        found["ddp_comm_dtype"] = ("comm_hook", f"DDPCommunicationHookType.{_FORMATS[dtype]}")
    return found
