"""What a worker took with it of a dataset, in so far as a glance can tell.

Workers that outlive an epoch keep the dataset of the epoch that they were started in. A script that
builds them anew may change its dataset in between, and counts on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from types import FunctionType, ModuleType
from typing import Any

from torch import Tensor

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
# Objects that are looked at, the nearest first: some milliseconds an epoch at the most.
_MOST = 5_000
# Items of a long list, spread over it: enough to notice that it was shuffled.
_ITEMS = 100


def snapshot(*things: object) -> list[object]:
    """What changes when `things` do, inside as well: lists that are equal stand for no change.

    No code of theirs is called. Not seen are attributes in `__slots__`, and what changes inside of
    a long list or array between the items that are looked at.
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
    """Stands for one object, less what is in its parts."""
    if type(thing) in _PLAIN:
        return type(thing), thing
    if isinstance(thing, Tensor) and not thing.is_inference():
        # Workers see what is written to shared memory.
        shared = thing.is_shared()  # type: ignore[no-untyped-call]
        return id(thing), None if shared else thing._version
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
    # Of a bound method, what it is bound to.
    own = getattr(thing, "__self__", None)
    attributes = getattr(thing, "__dict__", {})
    return (own, *(attributes.values() if isinstance(attributes, dict) else ()))
