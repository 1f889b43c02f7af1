"""Around a model that a script calls: autocast, and the way back where it cannot be compiled.

Results are as the script would have had them.
"""

from __future__ import annotations

import copy
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
) -> None:
    """Have every call of `model` that is trained run under autocast, and give float32.

    In the place where `Module.compile` puts what it compiled: it is no part of a copy, of a pickle
    or of the state_dict. `saw` is told the number format that the first such call ran in.
    """
    inner = model._compiled_call_impl or model._call_impl
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    told = False

    @functools.wraps(inner)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal told
        if not torch.is_grad_enabled():  # an evaluation keeps the precision that it had
            return inner(*args, **kwargs)
        with autocast(device):
            if not told:
                saw(_dtype_in_force(device.type))
                told = True
            result = inner(*args, **kwargs)
        return in_float32(result)

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
    match result:
        case Tensor():
            return result.float() if result.dtype in _SHORT else result
        case dict():
            same = copy.copy(result)  # a library's own kind of dict, which may refuse update()
            for key, value in result.items():
                same[key] = in_float32(value)
            return same
        case tuple() if hasattr(result, "_fields"):
            return type(result)(*map(in_float32, result))
        case tuple() | list():
            return type(result)(map(in_float32, result))
        case _:
            return result


def _dtype_in_force(device: str) -> torch.dtype | None:
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
