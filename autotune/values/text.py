"""Text for people: format numbers, clean foreign text, suggest known words."""

from __future__ import annotations

import hashlib
import json
import re
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path

SCHEMA_VERSION = 1
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024
_MINUTE, _HOUR = 60, 3600
# A file's name has at most 255 bytes, and others add to this.
_LONGEST_NAME = 220
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SLUG_LENGTH = 40
# Whole control sequences and control strings (such as a window's title); else single characters.
_CONTROL = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[\]P^_X][^\x07\x1b\n]*(?:\x07|\x1b\\)?"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)
_PASSWORD = re.compile(r"(\w://[^\s/:@]*:)[^\s@]+@|((?:password|passwd|pwd)=)[^\s&;'\"]+", re.I)


def json_text(data: Mapping[str, object]) -> str:
    """Return a command's result for programs: one JSON object on one line, with its version."""
    return json.dumps({"schema_version": SCHEMA_VERSION, **data})


def size(count: int) -> str:
    """Return a number of bytes with three digits and a binary unit."""
    amount, unit = float(count), 0
    while amount >= _STEP and unit < len(_UNITS) - 1:
        amount, unit = amount / _STEP, unit + 1
    return f"{amount:.3g} {_UNITS[unit]}" if amount < 1000 else f"{amount:.0f} {_UNITS[unit]}"  # noqa: PLR2004


def readable(value: float) -> float:
    """Return the number with six significant digits, more than any timing has; never -0."""
    return float(f"{value:.6g}") + 0.0


def span(seconds: float) -> str:
    """Return a time span in seconds, minutes or hours."""
    whole, minutes = round(seconds), round(seconds / _MINUTE)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    return f"{minutes // _MINUTE} h {minutes % _MINUTE} min"


def flag_of_seconds(seconds: float) -> str:
    """Return a time span as --time-budget and --trial-timeout take it."""
    return f"{seconds:.0f}s" if seconds % _MINUTE else f"{seconds / _MINUTE:.0f}m"


def rounds_text(rounds: int, disturbed: int | None) -> str:
    """Return the number of rounds, with the number of disturbed ones if there are any."""
    return f"{rounds} rounds" + (f", {disturbed} of them disturbed" if disturbed else "")


def as_file_name(settings: str) -> str:
    """Return a file name for settings as text; long ones and foreign letters end in a digest."""
    plain = settings.replace(",", "-").replace("=", "_")
    name = re.sub(r"[^A-Za-z0-9._-]", "_", plain)[:_LONGEST_NAME]
    if name == plain:
        return name
    return f"{name}-{hashlib.sha256(settings.encode(errors='replace')).hexdigest()[:8]}"


def folder_name(study: str) -> str:
    """Return a directory name that is safe on any file system; plain names stay as they are."""
    if _PLAIN_NAME.fullmatch(study):
        return study
    slug = re.sub(r"[^A-Za-z0-9]+", "-", study).strip("-")[:_SLUG_LENGTH] or "study"
    return f"{slug}-{hashlib.sha256(study.encode(errors='replace')).hexdigest()[:8]}"


def clean(text: str) -> str:
    """Remove control characters, except newlines and tabs, and mask passwords of URLs."""
    return without_passwords(_CONTROL.sub("", text))


def without_passwords(text: str) -> str:
    """Mask the passwords of URLs with stars."""
    return _PASSWORD.sub(lambda found: f"{found[1]}***@" if found[1] else f"{found[2]}***", text)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return " Did you mean ...?" with the nearest known word; empty if none is near."""
    spelled = {one.lower(): one for one in known}
    nearest = get_close_matches(word.lower(), list(spelled), n=1, cutoff=0.6)
    return f" Did you mean {spelled[nearest[0]]!r}?" if nearest else ""


def by_reason(reasons: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the names of each reason, both in the order in which they came."""
    found: dict[str, list[str]] = {}
    for name, why in reasons.items():
        found.setdefault(why, []).append(name)
    return found


def in_a_study(path: Path) -> str:
    """Return ", such as ...", with the file of that name in the latest study; empty without one."""
    with suppress(OSError):
        found = sorted(Path("studies").glob(f"*/{path.name}"), key=lambda one: one.stat().st_mtime)
        return f", such as {found[-1]}" if found else ""
    return ""


def signal_name(number: int) -> str:
    """Return the name of a signal, such as "SIGKILL"; real-time signals have only numbers."""
    known = {int(one): one.name for one in signal.Signals}
    return known.get(number, f"signal {number}")


def fault_of(error: ValueError) -> str:
    """Return the first fault, with its place if a schema gives it, and without the content."""
    errors = getattr(error, "errors", None)  # of pydantic's ValidationError
    if errors is None:
        return str(error)
    first = errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{first['msg']} at {'.'.join(map(str, first['loc'])) or 'the top'}"
