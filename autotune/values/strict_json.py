"""Check JSON from another process or an older file before its values are used.

Python's reader accepts NaN and infinity, which break comparisons, and text of any size. The meaning
of the fields is checked elsewhere.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import NoReturn

MOST_BYTES = 1 << 19
"""Most bytes of a file. A timing with twenty thousand short epochs takes half of it."""
# Most values of a file: each of a schema's errors holds a copy of all that was read.
_MOST_VALUES = 60_000
_MOST_INTEGER = 1 << 63


def read_some(path: Path) -> bytes:
    """Return a file's content, or the beginning of one that is too large for `check`.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        return file.read(MOST_BYTES + 1)


def check(text: str | bytes, most_bytes: int = MOST_BYTES) -> None:
    """Refuse text that is too large, nested too deeply, no JSON, or has an unusable number.

    The limit on the number of values grows with `most_bytes`.

    Raises:
        ValueError: the text is refused; the message says why.
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
    """Return the first fault, with its place if a schema gives it, and without the content."""
    errors = getattr(error, "errors", None)  # of pydantic's ValidationError
    if errors is None:
        return str(error)
    first = errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{first['msg']} at {'.'.join(map(str, first['loc'])) or 'the top'}"


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word:.40} is not a number to reckon with")


def _finite(digits: str) -> float:
    """Return the number; refuse one that overflows to infinity."""
    number = float(digits)
    return number if math.isfinite(number) else _refuse(digits)


def _small(digits: str) -> int:
    """Return the number; refuse one beyond 64 bits, which no count of bytes or samples needs."""
    # Short enough for int(), whose limit is 4300 digits.
    number = int(digits) if len(digits) <= 20 else _MOST_INTEGER  # noqa: PLR2004
    return number if abs(number) < _MOST_INTEGER else _refuse(digits)
