"""Types of the command line's values: functions that read one, or raise click.BadParameter."""

from __future__ import annotations

import hashlib
import math
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import click

if TYPE_CHECKING:
    from autotune.configuration.constraints import Tolerance
    from autotune.configuration.search_space import EffectiveBatch
    from autotune.knobs.base import Value

_SECONDS = {"s": 1, "m": 60, "h": 3600}
_SIZE = re.compile(r"\d*\.?\d+ ?[kmgtpe]?i?b?", re.IGNORECASE)
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SLUG_LENGTH = 40


def duration(value: object) -> float:
    """Return seconds, from "90s", "10m" or "1.5h"; from Python also a number."""
    text = f"{value}s" if isinstance(value, int | float) else str(value)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if not match or not float(match[1]):
        raise click.BadParameter(f"{value!r} is not a duration; write 90s, 10m or 1.5h.")
    return float(match[1]) * _SECONDS[match[2]]


def memory(value: object) -> float:
    """Return bytes as an int, from "16GB" (10^9) or "16GiB" (2^30), or a share, from "92%"."""
    share, is_relative = _amount(value)
    try:
        if not is_relative and not isinstance(value, float):
            return _bytes(value)
        if share is not None and 0 < share <= 1:
            return share
    except (ValueError, OverflowError):  # OverflowError: too many digits, for pydantic 2.11
        pass
    raise click.BadParameter(f"{value!r} is not an amount of memory; write 16GB, 512MiB or 92%.")


def _bytes(value: object) -> int:
    from pydantic import ByteSize, Field, TypeAdapter

    if not _SIZE.fullmatch(str(value)):  # pydantic would read "16,5GB" as 16 bytes
        raise ValueError
    return int(TypeAdapter(Annotated[ByteSize, Field(gt=0)]).validate_python(str(value)))


def tolerance(value: object) -> Tolerance:
    """Return a tolerance, from "1%" (a share) or "0.01" (absolute)."""
    from autotune.configuration.constraints import Tolerance

    if isinstance(value, Tolerance):
        return value
    amount, relative = _amount(value)
    if amount is None:
        raise click.BadParameter(f"{value!r} is not a tolerance; write 1% or 0.01.")
    return Tolerance(amount, relative)


def objective(value: object) -> str:
    """Return an objective: throughput, time-to-loss, or the latter with a loss, as in "=0.3"."""
    name, equals, loss = str(value).partition("=")
    is_known = str(value) in ("throughput", "time-to-loss")
    if name == "time-to-loss" and equals:
        with suppress(ValueError):
            is_known = math.isfinite(float(loss))
    if not is_known:
        raise click.BadParameter(
            f"{value!r} is not an objective; write throughput, time-to-loss or time-to-loss=0.3."
        )
    return str(value)


def share(value: object) -> float:
    """Return a share below 1, from "5%" or "0.05"."""
    amount, _ = _amount(value)
    if amount is None or amount >= 1:
        raise click.BadParameter(f"{value!r} is not a share; write 5% or 0.05.")
    return amount


def effective_batch(value: object) -> EffectiveBatch:
    """Return samples of an optimizer step: free, keep, or a number above zero."""
    if value in ("free", "keep"):
        return value
    if not re.fullmatch(r"[1-9]\d{0,8}", str(value)):
        raise click.BadParameter(f"{value!r} is not free, keep or a number of samples.")
    return int(str(value))


def settings(value: object) -> dict[str, Value]:
    """Return settings by name, from "batch_size=64,num_workers=2"."""
    from autotune.configuration.training_config import setting_faults

    found: dict[str, Value] = dict(value) if isinstance(value, dict) else {}
    for part in [] if isinstance(value, dict) else str(value).split(","):
        name, equals, text = (word.strip() for word in part.partition("="))
        if not equals:
            raise click.BadParameter(f"{part!r} is not a setting; write batch_size=64.")
        if name in found:
            raise click.BadParameter(f"{name} is given twice.")
        # The environment holds text, even where that looks like a number.
        found[name] = text if name.startswith("env.") and text != "null" else _setting(text)
    if faults := setting_faults(found):
        raise click.BadParameter(" ".join(faults.values()))
    return found


def folder_name(study: str) -> str:
    """Return a directory name that is safe on any file system; plain names stay as they are."""
    if _PLAIN_NAME.fullmatch(study):
        return study
    slug = re.sub(r"[^A-Za-z0-9]+", "-", study).strip("-")[:_SLUG_LENGTH] or "study"
    return f"{slug}-{hashlib.sha256(study.encode(errors='replace')).hexdigest()[:8]}"


def _amount(value: object) -> tuple[float | None, bool]:
    text = f"{value:.15f}" if isinstance(value, float) else str(value)
    match = re.fullmatch(r"(\d*\.?\d+)\s*(%?)", text)
    if not match:
        return None, False
    relative = match[2] == "%"
    return float(match[1]) / (100 if relative else 1), relative


def _setting(text: str) -> Value:
    """Parse a value as YAML spells it."""
    from autotune.values.strict_yaml import plain_value

    with suppress(ValueError):
        return plain_value(text) if text else text  # type: ignore[return-value]
    return text
