"""Compile a model or its blocks in place: compiled in training alone, results safe to keep.

Trials, `Best.prepare` and `autotune run` all compile through these functions.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from autotune.knobs.torch_private import (
    compiled_call,
    eager_call,
    is_compiled_wrapper,
    is_view,
    set_compiled_call,
)

if TYPE_CHECKING:
    from torch import Tensor, nn


_FEWEST_BLOCKS = 3


def compile_in_place(
    module: nn.Module, graphs: GraphGradients | None = None, **options: Any
) -> None:
    """Let calls of `module` in training run code that is compiled at the first of them.

    Args:
        module: the model or a part of it.
        graphs: gradients of the whole model, in modes with CUDA graphs; see `for_training`.
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
    for_training(module, graphs)


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


def _is_compiled(module: nn.Module) -> bool:
    # A call that is wrapped by autocast alone has no compiler.
    return hasattr(compiled_call(module), "get_compiler_config")


def _inlined(call: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `call` in a function of this package, because Dynamo skips torch's own functions."""

    def forward(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    return forward


def for_training(model: nn.Module, graphs: GraphGradients | None) -> None:
    """Run `model` compiled while gradients are recorded, and eager otherwise.

    An evaluation has batches of other shapes, each of which would be compiled, and may keep
    results. With `graphs`, results in training are copies that belong to the caller, because CUDA
    graphs write the results of all calls to the same memory. Copies stay in the autograd graph.
    Gradients that are still there at a call are copied, too: the next ones are added to them.

    Side effects: replaces the compiled call that `Module.compile` set, which is no part of a copy,
    a pickle or the state_dict. Does nothing if the model's own `compile` set none.
    """
    import torch

    eager, compiled = eager_call(model), compiled_call(model)
    if compiled is None:
        return
    parameters = list(model.parameters())

    @functools.wraps(compiled)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():  # inference mode included
            return eager(*args, **kwargs)
        if graphs is None:
            return compiled(*args, **kwargs)
        graphs.copy_out(parameters)
        return _copied(compiled(*args, **kwargs))

    set_compiled_call(model, call)


class GraphGradients:
    """Gradients of a model under CUDA graphs, which write them to the same memory in each run.

    Autograd adds the next gradients to those that are still there. The graph refuses to have that
    memory read once it runs again, so they are copied before.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._known: dict[int, weakref.ref[Tensor]] | None = None

    def copy_out(self, parameters: Iterable[nn.Parameter]) -> None:
        """Copy the gradients that came since the last call, if one of `parameters` has such a one.

        Left alone are those that were there before the first call, and views: memory of the user's
        own or of DistributedDataParallel.
        """
        if self._known is not None and all(map(self._is_known, parameters)):
            return
        known = {}
        for parameter in self._model.parameters():
            gradient = parameter.grad
            if gradient is None:
                continue
            is_left = self._known is None or self._is_known(parameter) or is_view(gradient)
            if not is_left:
                parameter.grad = gradient = gradient.clone()
            known[id(parameter)] = weakref.ref(gradient)
        self._known = known

    def _is_known(self, parameter: nn.Parameter) -> bool:
        gradient, known = parameter.grad, (self._known or {}).get(id(parameter))
        return gradient is None or (known is not None and known() is gradient)


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
