"""JSON from another process or an older file, looked at before anyone reckons with it.

Python's reader lets NaN and infinity pass, which then win every comparison of the wrong kind, and
takes as much memory as it is given to read. What the fields mean is checked elsewhere.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import NoReturn

MOST_BYTES = 1 << 19
"""A timing in which twenty thousand short epochs ended has half of it."""
# Each of a schema's errors holds a copy of all that was read.
_MOST_VALUES = 60_000
_MOST_INTEGER = 1 << 63


def read_some(path: Path) -> bytes:
    """A file's content, or so much of it that it is seen to be too large.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return file.read(MOST_BYTES + 1)


def check(text: str | bytes, most_bytes: int = MOST_BYTES) -> None:
    """Refuse what is too large, too deep, no JSON, or holds a number not to reckon with.

    A file that may be larger than others may hold as many more values.

    Raises:
        ValueError: what is wrong.
    """
    if len(text) > most_bytes:
        raise ValueError(f"it is larger than {most_bytes >> 10} KiB")
    most_values = _MOST_VALUES * most_bytes // MOST_BYTES
    if (text.count(",") if isinstance(text, str) else text.count(b",")) > most_values:
        raise ValueError(f"it has more than {most_values} values")
    try:
        json.loads(text, parse_constant=_refuse, parse_float=_finite, parse_int=_small)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def fault_of(error: ValueError) -> str:
    """What is wrong first, with its place where a schema says so, and without the content."""
    errors = getattr(error, "errors", None)  # of pydantic's ValidationError
    if errors is None:
        return str(error)
    first = errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{first['msg']} at {'.'.join(map(str, first['loc'])) or 'the top'}"


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word:.40} is not a number to reckon with")


def _finite(digits: str) -> float:
    """The number, unless it overflows to infinity."""
    number = float(digits)
    return number if math.isfinite(number) else _refuse(digits)


def _small(digits: str) -> int:
    """The number, unless it would not fit where bytes and samples are counted."""
    # Every character is a digit but the sign; Python's own limit is 4300 of them.
    number = int(digits) if len(digits) <= 20 else _MOST_INTEGER  # noqa: PLR2004
    return number if abs(number) < _MOST_INTEGER else _refuse(digits)
