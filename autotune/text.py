"""Numbers and foreign text as people read them."""

from __future__ import annotations

import re

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024
_MINUTE, _HOUR = 60, 3600
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def size(count: int) -> str:
    """Bytes with three digits and a binary unit."""
    amount, unit = float(count), 0
    while amount >= _STEP and unit < len(_UNITS) - 1:
        amount, unit = amount / _STEP, unit + 1
    return f"{amount:.3g} {_UNITS[unit]}" if amount < 1000 else f"{amount:.0f} {_UNITS[unit]}"  # noqa: PLR2004


def span(seconds: float) -> str:
    """A span of time in the unit that suits it."""
    if seconds < _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE:.0f} min {seconds % _MINUTE:.0f} s"
    return f"{seconds // _HOUR:.0f} h {seconds % _HOUR / _MINUTE:.0f} min"


def clean(text: str) -> str:
    """Without terminal escapes and other control characters, newlines and tabs excepted."""
    return _CONTROL.sub("", text)
