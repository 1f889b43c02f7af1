"""Detect changes of a dataset between epochs at little cost.

Workers that outlive an epoch keep the dataset with which they were started. A script whose workers
start anew each epoch may change its dataset in between and relies on that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from types import FunctionType, ModuleType
from typing import Any

from torch import Tensor

from autotune.knobs.torch_private import changes_in_place

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
# Objects that are examined, nearest first; takes at most some milliseconds an epoch.
_MOST = 5_000
# Items of a long list that are examined, spread over it: enough to notice that it was shuffled.
_ITEMS = 100


def snapshot(*things: object) -> list[object]:
    """Return a list that differs from an earlier one if `things`, or objects in them, have changed.

    No code of theirs is called. It misses attributes in `__slots__`, and changes in a long list or
    array between the items that are examined.
    """
    found: list[object] = []
    known: set[int] = set()
    ahead = deque(things)
    while ahead and len(found) < _MOST:
        thing = ahead.popleft()
        found.append(_mark(thing))
        if type(thing) not in _PLAIN and id(thing) not in known:
            known.add(id(thing))
            ahead.extend(_parts(thing))
    return found


def _mark(thing: Any) -> object:
    """Return a value that changes when the object itself does, its parts aside."""
    if type(thing) in _PLAIN:
        return type(thing), thing
    if isinstance(thing, Tensor) and not thing.is_inference():
        # Workers see changes in shared memory.
        shared = thing.is_shared()  # type: ignore[no-untyped-call]
        return id(thing), None if shared else changes_in_place(thing)
    if f"{type(thing).__module__}.{type(thing).__name__}" == "numpy.ndarray":
        return id(thing), thing.flat[:: max(1, thing.size // _ITEMS)].tobytes()
    return id(thing), len(thing) if isinstance(thing, (list, tuple, dict, set)) else None


def _parts(thing: Any) -> Iterable[object]:
    match thing:
        case Tensor() | ModuleType() | FunctionType() | type():
            return ()
        case dict():
            return (part for item in islice(thing.items(), _ITEMS) for part in item)
        case list() | tuple():
            return thing[:: max(1, len(thing) // _ITEMS)]
        case set():
            return islice(thing, _ITEMS)
    # The object that a bound method is bound to.
    own = getattr(thing, "__self__", None)
    attributes = getattr(thing, "__dict__", {})
    return (own, *(attributes.values() if isinstance(attributes, dict) else ()))
