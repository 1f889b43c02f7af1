"""Gives the optimizers that a script builds an argument that it did not think of."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import optim
from torch.optim import Optimizer

Fail = Callable[[str, BaseException], None]


def fuse_optimizers(kwargs: Mapping[str, Any], fail: Fail) -> None:
    """Have torch's optimizers take `kwargs`, such as `fused=True`, where the script says nothing.

    An optimizer that refuses is built as the script wrote it, and `fail` is told why.
    """
    for kind in _taking(kwargs):
        kind.__init__ = _with(kind.__init__, kwargs, fail)  # type: ignore[method-assign]


def _taking(kwargs: Mapping[str, Any]) -> list[type[Optimizer]]:
    """The optimizers that know all of `kwargs`."""
    kinds = [kind for kind in vars(optim).values() if inspect.isclass(kind)]
    return [
        kind
        for kind in kinds
        if issubclass(kind, Optimizer)
        and kwargs.keys() <= inspect.signature(kind).parameters.keys()
    ]


def _with(original: Any, kwargs: Mapping[str, Any], fail: Fail) -> Any:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def __init__(*args: Any, **given: Any) -> None:  # noqa: N807
        try:
            bound = signature.bind(*args, **given)
        except TypeError:
            original(*args, **given)  # which says it in its own words
            return
        mine = {n: v for n, v in kwargs.items() if bound.arguments.get(n) is None}
        if not mine:  # the script, or a subclass, has decided
            original(*args, **given)
            return
        # Twice is once too often for an iterator of parameters.
        bound.arguments["params"] = list(bound.arguments["params"])
        try:
            bound.arguments.update(mine)
            original(*bound.args, **bound.kwargs)
        except (RuntimeError, ValueError, TypeError) as error:
            fail("fused_optimizer", error)
            for name in mine:
                bound.arguments.pop(name)
            original(*bound.args, **bound.kwargs)

    return __init__
