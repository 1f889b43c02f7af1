"""Compile a model or its blocks in place: compiled in training alone, results safe to keep.

Trials, `Best.prepare` and `autotune run` all compile through these functions.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import weakref
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from autotune.knobs.torch_private import (
    compiled_call,
    eager_call,
    is_compiled_wrapper,
    set_compiled_call,
)

if TYPE_CHECKING:
    from torch import Tensor, nn


_FEWEST_BLOCKS = 3


def compile_in_place(module: nn.Module, copies: bool, **options: Any) -> None:
    """Let calls of `module` in training run code that is compiled at the first of them.

    Args:
        module: the model or a part of it.
        copies: give results that belong to the caller; see `for_training`.
        options: keyword arguments of torch.compile.
    """
    import torch
    from torch import nn

    kind = type(module)
    if kind.__module__.startswith("torch.nn") or kind.compile is not nn.Module.compile:
        # Before torch 2.15 compile() silently did nothing for torch's own classes. A class with a
        # compile() of its own may compile something else than training calls.
        set_compiled_call(module, torch.compile(_inlined(eager_call(module)), **options))
    else:
        module.compile(**options)
    for_training(module, copies)


def repeated_blocks(model: nn.Module) -> list[nn.Module]:
    """Return the modules that a model repeats, in the order of `model.modules()`.

    A block has modules of its own, and an nn.ModuleList or nn.Sequential holds at least three of
    its class. Blocks inside of blocks are left out.
    """
    from torch import nn

    found: dict[nn.Module, None] = {}
    inside: set[nn.Module] = set()
    for module in model.modules():
        if module in inside or not isinstance(module, nn.ModuleList | nn.Sequential):
            continue
        alike: dict[type, list[nn.Module]] = defaultdict(list)
        for child in dict.fromkeys(module.children()):
            if any(True for _ in child.children()):
                alike[type(child)].append(child)
        for block in (
            b for blocks in alike.values() if len(blocks) >= _FEWEST_BLOCKS for b in blocks
        ):
            found[block] = None
            inside.update(block.modules())
    return [module for module in model.modules() if module in found]


def compiled_modules(model: nn.Module) -> list[nn.Module]:
    """Return the model if its calls are compiled, else those of its repeated blocks that are."""
    return [
        module
        for module in ([model] if _is_compiled(model) else repeated_blocks(model))
        if _is_compiled(module)
    ]


def is_compiled(module: nn.Module) -> bool:
    """Return True if calls of this very module are compiled, in place or by a wrapper."""
    return is_compiled_wrapper(module) or _is_compiled(module)


def is_compiled_function(call: Callable[..., Any] | None) -> bool:
    """Return True if torch.compile made a function."""
    return hasattr(call, "get_compiler_config")


def _is_compiled(module: nn.Module) -> bool:
    # A call that is wrapped by autocast alone has no compiler.
    return is_compiled_function(compiled_call(module))


def _inlined(call: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `call` in a function of this package, because Dynamo skips torch's own functions."""

    def forward(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    return forward


def for_training(model: nn.Module, copies: bool) -> None:
    """Run `model` compiled while gradients are recorded, and eager otherwise.

    An evaluation has batches of other shapes, each of which would be compiled, and may keep
    results. With `copies`, results in training are copies that belong to the caller, because CUDA
    graphs write the results of all calls to the same memory. Copies stay in the autograd graph.
    Gradients that are still there at a call are copied, too: the next ones are added to them.

    Side effects: replaces the compiled call that `Module.compile` set, which is no part of a copy,
    a pickle or the state_dict. Does nothing if the model's own `compile` set none.
    """
    import torch

    eager, compiled = eager_call(model), compiled_call(model)
    if compiled is None:
        return
    gradients = _Gradients(model)

    @functools.wraps(compiled)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():  # inference mode included
            return eager(*args, **kwargs)
        if not copies:
            return compiled(*args, **kwargs)
        gradients.copy_out()
        return _copied(compiled(*args, **kwargs))

    set_compiled_call(model, call)


class _Gradients:
    """The gradients of a module, which CUDA graphs write to memory of their own."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    @functools.cached_property
    def _parameters(self) -> list[nn.Parameter]:
        return [one for one in self._module.parameters() if one.requires_grad]

    @functools.cached_property
    def _copies(self) -> list[Callable[[], Tensor | None]]:
        return [lambda: None] * len(self._parameters)

    def copy_out(self) -> None:
        """Copy each gradient that may lie in a graph's memory, before the graph runs again."""
        for place, parameter in enumerate(self._parameters):
            gradient = parameter.grad
            if gradient is not None and gradient is not self._copies[place]():
                parameter.grad = gradient.clone()
                self._copies[place] = weakref.ref(parameter.grad)


def _copied(result: Any) -> Any:
    """Return the result with every tensor copied, or itself if its type cannot be rebuilt."""
    import torch

    try:
        return with_tensors(result, torch.clone)
    except Exception:  # a type of the model's own
        return result


def with_tensors(result: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return a model's result with `change` applied to every tensor in it, however nested.

    Raises:
        Exception: any error of the model's own types, if they cannot be rebuilt.
    """
    from torch import Tensor

    same: Any
    match result:
        case Tensor():
            return change(result)
        case dict():
            same = copy.copy(result)  # a library's subclass of dict may refuse update()
            for key, value in result.items():
                same[key] = with_tensors(value, change)
            return same
        case tuple() if hasattr(result, "n_sequence_fields"):  # such as the result of torch.max
            return type(result)(with_tensors(part, change) for part in result)
        case tuple():
            # Not by the constructor, which may take the parts one by one.
            same = tuple.__new__(type(result), (with_tensors(part, change) for part in result))
            if hasattr(result, "__dict__"):
                vars(same).update(vars(result))
            return same
        case list():
            same = copy.copy(result)
            same[:] = (with_tensors(part, change) for part in result)
            return same
        case _ if dataclasses.is_dataclass(result) and not isinstance(result, type):
            same = copy.copy(result)
            for field in dataclasses.fields(result):
                value = with_tensors(getattr(result, field.name), change)
                object.__setattr__(same, field.name, value)  # the class may be frozen
            return same
        case _:
            return result
