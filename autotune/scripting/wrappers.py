"""Wrappers of what a script calls: models under autocast or with a fallback, optimizers' classes.

A script gets a model's results in float32, as without autocast. An optimizer gets arguments such as
`fused=True`.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn, optim
from torch.optim import Optimizer

from autotune.knobs import torch_private
from autotune.knobs.compile import with_tensors
from autotune.scripting.steps import ModelCalls

Fail = Callable[[str, BaseException], None]
"""Function that notes that a knob, by its name, could not be applied, with the error."""

_SHORT = (torch.float16, torch.bfloat16)


def under_autocast(
    model: nn.Module,
    autocast: Callable[[torch.device], AbstractContextManager[None]],
    saw: Callable[[torch.dtype | None], None],
    failed: Callable[[BaseException], None],
) -> None:
    """Run every training call of `model` under autocast, and return float32 to the script.

    The wrapper stands where `Module.compile` keeps compiled code. So it is no part of a copy, a
    pickle or the state_dict. `saw` gets the dtype in which the first such call ran. If a result
    cannot be converted to float32, `failed` gets the error and the model runs without autocast.
    """
    inner = torch_private.compiled_call(model) or torch_private.eager_call(model)
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    told, works = False, True

    @functools.wraps(inner)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal told, works
        # An evaluation keeps its precision.
        if not (works and torch.is_grad_enabled()):
            return inner(*args, **kwargs)
        with autocast(device):
            if not told:
                is_on = torch.is_autocast_enabled(device.type)
                saw(torch.get_autocast_dtype(device.type) if is_on else None)
                told = True
            result = inner(*args, **kwargs)
        try:
            return in_float32(result)
        except Exception as error:  # a type of the script's own that cannot be rebuilt
            works = False
            failed(error)
            return result

    torch_private.set_compiled_call(model, call)


def or_eager(model: nn.Module, failed: Callable[[BaseException], None]) -> None:
    """Run `model`, which will be compiled at its first call, uncompiled if that fails.

    `failed` gets the error, and compilation is not tried again. An error of the model itself is
    raised again by the uncompiled call.
    """
    eager, compiled = torch_private.eager_call(model), torch_private.compiled_call(model)
    fails = torch_private.compile_error()
    assert compiled is not None
    works = True

    @functools.wraps(compiled)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal works
        if works:
            try:
                return compiled(*args, **kwargs)
            except fails as error:
                works = False
                failed(error)
        return eager(*args, **kwargs)

    torch_private.set_compiled_call(model, call)


def counted(model: nn.Module, calls: ModelCalls) -> None:
    """Record every call of `model`, in training or in an evaluation, without changing it."""
    inner = torch_private.own_call(model)

    @functools.wraps(inner)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled():
            calls.called((*args, *kwargs.values()))
        if torch.is_grad_enabled() or model.training:
            return inner(*args, **kwargs)
        start = time.perf_counter()
        result = inner(*args, **kwargs)
        calls.evaluated(start)
        return result

    torch_private.set_own_call(model, call)


def watch_acting(model: nn.Module, calls: ModelCalls) -> None:
    """Record the calls of `model` in training mode without gradients, without changing it."""
    inner = torch_private.own_call(model)

    @functools.wraps(inner)
    def call(*args: Any, **kwargs: Any) -> Any:
        if model.training and not torch.is_grad_enabled():
            calls.acted((*args, *kwargs.values()))
        return inner(*args, **kwargs)

    torch_private.set_own_call(model, call)


def within(model: nn.Module, context: Callable[[], AbstractContextManager[None]]) -> None:
    """Run every training call of `model` in a context of its own, without changing it."""
    inner = torch_private.own_call(model)

    @functools.wraps(inner)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return inner(*args, **kwargs)
        with context():
            return inner(*args, **kwargs)

    torch_private.set_own_call(model, call)


def in_float32(result: Any) -> Any:
    """Return a model's nested result with every float16 or bfloat16 tensor as float32."""
    return with_tensors(result, lambda one: one.float() if one.dtype in _SHORT else one)


def change_optimizers(kwargs: Mapping[str, Any], fail: Fail) -> None:
    """Patch torch's optimizers to use `kwargs`, such as `fused=True`, unless the script sets them.

    An optimizer that refuses them is built as the script wrote it, and `fail` gets the error.
    """
    for kind in filter(inspect.isclass, vars(optim).values()):
        if issubclass(kind, Optimizer):
            original = kind.__init__
            if kwargs.keys() <= inspect.signature(original).parameters.keys():
                changed = _with_arguments(original, kwargs, fail)
                kind.__init__ = changed  # type: ignore[method-assign]


def _with_arguments(original: Any, kwargs: Mapping[str, Any], fail: Fail) -> Any:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def __init__(*args: Any, **given: Any) -> None:  # noqa: N807
        try:
            bound = signature.bind(*args, **given)
        except TypeError:
            original(*args, **given)  # raises torch's own error
            return
        mine = {n: v for n, v in kwargs.items() if bound.arguments.get(n) is None}
        if not mine:  # the script, or a subclass, has decided
            original(*args, **given)
            return
        # A list, because an iterator of parameters could not be read a second time.
        bound.arguments["params"] = list(bound.arguments["params"])
        try:
            bound.arguments.update(mine)
            original(*bound.args, **bound.kwargs)
        except (RuntimeError, ValueError, TypeError) as error:
            fail("optimizer_impl", error)
            for name in mine:
                bound.arguments.pop(name)
            original(*bound.args, **bound.kwargs)

    return __init__
