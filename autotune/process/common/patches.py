"""Replace functions of torch and other packages for this process, until that is undone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

_UNDO: list[Callable[[], None]] = []


def replace(owner: Any, name: str, function: Callable[..., Any]) -> Callable[[], None]:
    """Call `function` in place of an attribute of `owner`, which it gets as its first argument.

    Returns:
        A function that undoes this.
    """
    original = getattr(owner, name)

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(original, *args, **kwargs)

    setattr(owner, name, call)
    undo = partial(setattr, owner, name, original)
    _UNDO.append(undo)
    return undo


def undo_all() -> None:
    """Undo every replacement, the last one first."""
    while _UNDO:
        _UNDO.pop()()
