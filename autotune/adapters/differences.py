"""Settings that a trainer of another library has otherwise than a best.yaml says."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from autotune.configuration.mismatch import report
from autotune.knobs.base import Value
from autotune.knobs.compiled_calls import is_compiled, is_compiled_function
from autotune.knobs.model import implementation_of, stored_channels_last
from autotune.production import Best
from autotune.values.errors import MismatchWarning

_LOADER = ("batch_size", "num_workers", "pin_memory", "persistent_workers", "prefetch_factor")
# torch tells only after the first step in which mode something was compiled.
_COMPILED = "compiled"


@dataclass(frozen=True, slots=True)
class Asked:
    """Arguments that a best.yaml asks a trainer for."""

    said: Mapping[str, Any]
    left: Mapping[str, str] = field(default_factory=dict)
    """Settings that they lack, each with what to do instead."""


def loader_settings(loader: Any) -> dict[str, Any]:
    """Return the arguments of a DataLoader; none for what is no DataLoader."""
    return {name: getattr(loader, name) for name in _LOADER if hasattr(loader, name)}


def in_force(
    model: nn.Module, groups: Iterable[Mapping[str, Any]], calls: Iterable[Callable[..., Any]] = ()
) -> dict[str, Value]:
    """Return the settings that can be read back from a training, before its first step.

    Args:
        model: the model in training. One compiled part of it makes it a compiled one.
        groups: the groups of parameters of its optimizers.
        calls: methods of the model that a trainer compiles one by one.
    """
    is_layout_known = (is_last := stored_channels_last(model)) is not None
    compiles = any(map(is_compiled, model.modules())) or any(map(is_compiled_function, calls))
    return {
        "optimizer_impl": implementation_of(groups),
        "compile_mode": _COMPILED if compiles else None,
        **({"channels_last": is_last} if is_layout_known else {}),
    }


def tell_differences(
    best: Best, who: str, asked: Asked, has: Mapping[str, Any], live: Mapping[str, Value]
) -> None:
    """Warn of each setting that differs in `who`, and of those that cannot be read back there.

    Args:
        best: the file.
        who: the trainer, as messages name it.
        asked: arguments that the file asks for, and the settings that they lack.
        has: arguments of the trainer.
        live: settings as they were read back, by the name of their knob.

    Raises:
        MismatchError: in place of the first warning, if the file was loaded with `strict`.
    """
    of_file = {name: best.config[name] for name in live}
    if "compile_mode" in live and of_file["compile_mode"] is not None:
        of_file["compile_mode"] = _COMPILED
    said, found = {**asked.said, **of_file}, {**has, **live}
    lines = [
        f"{name}: {_told(said[name])} in the file, {_told(found[name])} in {who}"
        for name in found
        if name in said and _plain(found[name]) != _plain(said[name])
    ]
    study = best.answer.provenance.study
    unread = [text for name, text in asked.left.items() if name not in live]
    if unread:
        head = f"{who} cannot tell of these settings of study {study}. Set them yourself:"
        text = "\n".join([head, *(f"  {line}" for line in unread)])
        warnings.warn(text, MismatchWarning, stacklevel=2)
    report(f"the answer of study {study}", lines, strict=best.is_strict)


def _told(value: Any) -> Any:
    return "null" if value is None else value


def _plain(value: Any) -> Any:
    """Return a value such that what means the same is equal: an enumeration's member its value."""
    return getattr(value, "value", value)
