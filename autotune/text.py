"""Numbers and foreign text as people read them."""

from __future__ import annotations

import re

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024
_MINUTE, _HOUR = 60, 3600
# Control sequences, and strings such as a window's title, as a whole; of others the first byte.
_CONTROL = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[\]P^_X][^\x07\x1b\n]*(?:\x07|\x1b\\)?"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)
_PASSWORD = re.compile(r"(\w://[^\s/:@]*:)[^\s@]+@|((?:password|passwd|pwd)=)[^\s&;'\"]+", re.I)


def size(count: int) -> str:
    """Bytes with three digits and a binary unit."""
    amount, unit = float(count), 0
    while amount >= _STEP and unit < len(_UNITS) - 1:
        amount, unit = amount / _STEP, unit + 1
    return f"{amount:.3g} {_UNITS[unit]}" if amount < 1000 else f"{amount:.0f} {_UNITS[unit]}"  # noqa: PLR2004


def readable(value: float) -> float:
    """The number with six significant digits, more than any timing has."""
    return float(f"{value:.6g}")


def span(seconds: float) -> str:
    """A span of time in the unit that suits it."""
    whole, minutes = round(seconds), round(seconds / _MINUTE)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    return f"{minutes // _MINUTE} h {minutes % _MINUTE} min"


def about_left(seconds: float | None) -> str:
    """How long it will still take, behind something else; nothing where nobody knows."""
    return "" if seconds is None else f", about {span(seconds)} left"


def clean(text: str) -> str:
    """Without what text from elsewhere may hold: terminal escapes, passwords of URLs.

    Of control characters, newlines and tabs stay.
    """
    return without_passwords(_CONTROL.sub("", text))


def without_passwords(text: str) -> str:
    """With stars for what stands as a password in URLs."""
    return _PASSWORD.sub(lambda found: f"{found[1]}***@" if found[1] else f"{found[2]}***", text)
