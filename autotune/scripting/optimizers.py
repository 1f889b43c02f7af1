"""Add arguments, such as `fused=True`, to the optimizers that a script builds."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import optim
from torch.optim import Optimizer

Fail = Callable[[str, BaseException], None]


def fuse_optimizers(kwargs: Mapping[str, Any], fail: Fail) -> None:
    """Patch torch's optimizers to use `kwargs`, such as `fused=True`, unless the script sets them.

    An optimizer that refuses them is built as the script wrote it, and `fail` gets the error.
    """
    for kind in _taking(kwargs):
        kind.__init__ = _with(kind.__init__, kwargs, fail)  # type: ignore[method-assign]


def _taking(kwargs: Mapping[str, Any]) -> list[type[Optimizer]]:
    """Return torch's optimizers that take all of `kwargs`."""
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
            fail("fused_optimizer", error)
            for name in mine:
                bound.arguments.pop(name)
            original(*bound.args, **bound.kwargs)

    return __init__
