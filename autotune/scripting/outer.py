"""Around a model that a script calls: autocast, and the way back where it cannot be compiled.

Results are as the script would have had them.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

_SHORT = (torch.float16, torch.bfloat16)


def under_autocast(
    model: nn.Module,
    autocast: Callable[[torch.device], AbstractContextManager[None]],
    saw: Callable[[torch.dtype | None], None],
    failed: Callable[[BaseException], None],
) -> None:
    """Have every call of `model` that is trained run under autocast, and give float32.

    In the place where `Module.compile` puts what it compiled: it is no part of a copy, of a pickle
    or of the state_dict. `saw` is told the number format that the first such call ran in.
    A result that cannot be lengthened is given as it is; `failed` is told why, and from then on the
    model runs as it was.
    """
    inner = model._compiled_call_impl or model._call_impl
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    told, works = False, True

    @functools.wraps(inner)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal told, works
        # An evaluation keeps the precision that it had.
        if not (works and torch.is_grad_enabled()):
            return inner(*args, **kwargs)
        with autocast(device):
            if not told:
                saw(_dtype_in_force(device.type))
                told = True
            result = inner(*args, **kwargs)
        try:
            return in_float32(result)
        except Exception as error:  # a kind of the script's own that cannot be built anew
            works = False
            failed(error)
            return result

    model._compiled_call_impl = call


def or_eager(model: nn.Module, failed: Callable[[BaseException], None]) -> None:
    """Have `model`, which is to be compiled at its first call, run as it was if that fails.

    `failed` is told why; nothing is tried again. A mistake of the model's own comes once more when
    it runs as it was.
    """
    from torch._dynamo.exc import TorchDynamoException

    eager: Callable[..., Any] = model._call_impl
    compiled = model._compiled_call_impl
    assert compiled is not None
    works = True

    @functools.wraps(compiled)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal works
        if works:
            try:
                return compiled(*args, **kwargs)
            except TorchDynamoException as error:
                works = False
                failed(error)
        return eager(*args, **kwargs)

    model._compiled_call_impl = call


def in_float32(result: Any) -> Any:
    """What a model gave, with every number of a shorter format lengthened, however nested."""
    same: Any
    match result:
        case Tensor():
            return result.float() if result.dtype in _SHORT else result
        case dict():
            same = copy.copy(result)  # a library's own kind of dict, which may refuse update()
            for key, value in result.items():
                same[key] = in_float32(value)
            return same
        case tuple() if hasattr(result, "n_sequence_fields"):  # as torch.max gives
            return type(result)(map(in_float32, result))
        case tuple():
            # Past a constructor that may take its parts one by one.
            same = tuple.__new__(type(result), map(in_float32, result))
            if hasattr(result, "__dict__"):
                vars(same).update(vars(result))
            return same
        case list():
            same = copy.copy(result)
            same[:] = map(in_float32, result)
            return same
        case _ if dataclasses.is_dataclass(result) and not isinstance(result, type):
            same = copy.copy(result)
            for field in dataclasses.fields(result):
                # Past a class that is frozen.
                object.__setattr__(same, field.name, in_float32(getattr(result, field.name)))
            return same
        case _:
            return result


def _dtype_in_force(device: str) -> torch.dtype | None:
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
