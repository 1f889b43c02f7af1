"""What every form of the answer shares: its text, what the text leaves out, and its header."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from autotune.best import BestConfig
from autotune.knobs import ALL_KNOBS
from autotune.knobs.base import Value, spelled
from autotune.version import __version__

LR_FACTOR = "lr_factor"
"""What model.py's learning rates are to be multiplied by; nothing is said of it where that is 1."""


# Where a DataLoader's own default is not what the knob starts from.
_LEFT_ALONE: dict[str, Value] = {"batch_size": 1}


@dataclass(frozen=True, slots=True)
class Exported:
    """A text, and what it does not carry."""

    text: str
    dropped: Mapping[str, str] = field(default_factory=dict)
    """Names of settings, each with its value and what to do instead."""
    use: str = ""
    """How a person puts the text to use."""


@dataclass(frozen=True, slots=True)
class Form:
    """One way to write an answer down."""

    render: Callable[[BestConfig], Exported]
    has_comments: bool = True
    """Lines that start with # mean nothing in it."""


def left_out(
    best: BestConfig,
    carried: Collection[str],
    in_force: Mapping[str, Value] | None = None,
    instead: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The settings that a form has no word for, with what to do about each.

    Args:
        best: the answer.
        carried: knobs that the form has words for.
        in_force: what its reader sets by itself, where that is not PyTorch's default.
        instead: what to do about a knob, where that is not PyTorch's own call.
    """
    config, ways = best.training_config, instead or {}
    own = {**_LEFT_ALONE, **(in_force or {})}
    dropped = {
        knob.name: f"{knob.name}={spelled(config[knob.name])}: {ways.get(knob.name, knob.call)}"
        for knob in ALL_KNOBS
        if knob.name not in carried
        and (knob.needs is None or config[knob.needs])
        and config[knob.name] != own.get(knob.name, knob.default)
    }
    factor = best.lr_scaling.factor
    if factor != 1 and LR_FACTOR not in carried:
        dropped[LR_FACTOR] = f"{LR_FACTOR}={factor:g}: multiply your learning rates by it"
    return dropped


def is_half_on_cpu(best: BestConfig) -> bool:
    """Whether it asks for float16 on a CPU, which Accelerate refuses and Lightning replaces."""
    return best.machine.device == "cpu" and best.config.get("amp_dtype") == "float16"


def commented(best: BestConfig, name: str, exported: Exported) -> Exported:
    """The same under a header: where it comes from, how to use it and what it leaves out."""
    machine, source = best.machine, best.provenance
    lines = [
        f"autotune {__version__} export --format {name}, trial {source.trial} of study "
        f"{source.study}",
        f"measured on {machine.device} ({machine.cpu}, {machine.cores} cores), "
        f"torch {machine.torch}, machine {machine.fingerprint}",
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
    """Nothing that could end a comment, in any language."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
