"""Replace the compiled call of a model: compiled in training alone, results safe to keep.

Trials, `Best.prepare` and `autotune run` all compile through the knob.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from autotune.knobs.torch_private import compiled_call, eager_call, set_compiled_call

if TYPE_CHECKING:
    from torch import Tensor, nn


def for_training(model: nn.Module, copies: bool) -> None:
    """Run `model` compiled while gradients are recorded, and eager otherwise.

    An evaluation has batches of other shapes, each of which would be compiled, and may keep
    results. With `copies`, results in training are copies that belong to the caller, because CUDA
    graphs write the results of all calls to the same memory. Copies stay in the autograd graph.

    Side effects: replaces the compiled call that `Module.compile` set, which is no part of a copy,
    a pickle or the state_dict. Does nothing if the model's own `compile` set none.
    """
    import torch

    eager, compiled = eager_call(model), compiled_call(model)
    if compiled is None:
        return

    @functools.wraps(compiled)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():  # inference mode included
            return eager(*args, **kwargs)
        result = compiled(*args, **kwargs)
        return _copied(result) if copies else result

    set_compiled_call(model, call)


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
