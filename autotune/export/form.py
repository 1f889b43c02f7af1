"""Parts of every form of a result: its text, the settings left out, and the header."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from autotune import __version__
from autotune.configuration.best_config import BestConfig
from autotune.configuration.mismatch import edited
from autotune.configuration.script import with_flags
from autotune.export.ranks import PROCESSES, by_torchrun
from autotune.knobs.base import Value, spelled

LR_FACTOR = "lr_factor"
"""Name of the factor on model.py's learning rates; left out if the factor is 1."""


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


@dataclass(frozen=True, slots=True)
class Form:
    """A form in which a result can be written."""

    render: Callable[[BestConfig], Exported]
    has_comments: bool = True
    """True if lines that start with # are comments."""


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
        dropped[PROCESSES] = (
            f"{PROCESSES}={best.processes}: {ways.get(PROCESSES, by_torchrun(best))}"
        )
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


def commented(best: BestConfig, name: str, exported: Exported) -> Exported:
    """Return the text under a comment with its origin, its use and the settings left out."""
    machine, source = best.machine, best.provenance
    lines = [
        f"autotune {__version__} export --format {name}, trial {source.trial} of study "
        f"{source.study}",
        f"measured on {machine.device} ({machine.cpu}, {machine.cores} cores), "
        f"torch {machine.torch}, machine {machine.fingerprint}",
        *(f"edited since, and not measured: {text}" for text in edited(best)),
    ]
    if exported.use:
        lines.append(f"use: {exported.use}")
    if exported.dropped:
        lines += [
            "not carried, set these yourself:",
            *(f"  {d}" for d in exported.dropped.values()),
        ]
    header = "".join(f"# {_one_line(line)}\n" for line in lines)
    return Exported(header + exported.text, exported.dropped, exported.use)


def _one_line(text: str) -> str:
    """Replace the characters that could end a comment in any language."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
