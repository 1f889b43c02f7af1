"""Parameter types of the command line: durations, sizes, shares, tolerances, settings."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar

import click

from autotune.process.common.interpreter import Interpreter, interpreter_at, own_interpreter
from autotune.values.text import did_you_mean

if TYPE_CHECKING:
    from click import ParamType

    from autotune.configuration.constraints import Tolerance
    from autotune.configuration.search_space import EffectiveBatch
    from autotune.knobs.base import Value
else:

    class ParamType(click.ParamType):
        """The type of click, which older versions do not know as generic."""

        def __class_getitem__(cls, _: object) -> type[ParamType]:
            return cls


_Number = TypeVar("_Number", bound=float)
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_SIZE = re.compile(r"\d*\.?\d+ ?[kmgtpe]?i?b?", re.IGNORECASE)
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SLUG_LENGTH = 40


class Amount(ParamType[_Number]):
    """A number with a unit; `read` raises ValueError for other values."""

    def __init__(self, name: str, read: Callable[[object], _Number], meant: str) -> None:
        self.name, self._read, self._meant = name, read, meant

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> _Number:
        """Return what was read."""
        try:
            return self._read(value)
        except ValueError:
            self.fail(f"{value!r} is not {self._meant}.", param, ctx)


def _seconds(value: object) -> float:
    text = f"{value}s" if isinstance(value, int | float) else str(value)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if not match or not float(match[1]):
        raise ValueError
    return float(match[1]) * _SECONDS[match[2]]


def _bytes(value: object) -> int:
    from pydantic import ByteSize, Field, TypeAdapter

    if not _SIZE.fullmatch(str(value)):  # pydantic would read "16,5GB" as 16 bytes
        raise ValueError
    try:
        return int(TypeAdapter(Annotated[ByteSize, Field(gt=0)]).validate_python(str(value)))
    except OverflowError as error:  # too many digits, for pydantic 2.11
        raise ValueError from error


def _bytes_or_share(value: object) -> float:
    share, is_relative = _amount(value)
    if not is_relative and not isinstance(value, float):
        return _bytes(value)
    if share is None or not 0 < share <= 1:
        raise ValueError
    return share


DURATION = Amount("duration", _seconds, "a duration; write 90s, 10m or 1.5h")
"""Seconds, from "90s", "10m" or "1.5h"; from Python also a number."""
SIZE = Amount("size", _bytes, "a size above zero; write 16GB or 512MiB")
"""Bytes, from "16GB" (10^9 each), "16GiB" (2^30 each) or a plain number."""
MEMORY = Amount("memory", _bytes_or_share, "an amount of memory; write 16GB, 512MiB or 92%")
"""Bytes as an int, as `SIZE` reads them, or a share as a float, from "92%"."""


class ToleranceType(ParamType["Tolerance"]):
    """A tolerance, from "1%" (a share) or "0.01" (absolute)."""

    name = "tolerance"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Tolerance:
        """Return the tolerance."""
        from autotune.configuration.constraints import Tolerance

        if isinstance(value, Tolerance):
            return value
        amount, relative = _amount(value)
        if amount is None:
            self.fail(f"{value!r} is not a tolerance; write 1% or 0.01.", param, ctx)
        return Tolerance(amount, relative)


class EffectiveBatchType(ParamType["EffectiveBatch"]):
    """Samples of an optimizer step: free, keep, or a number above zero."""

    name = "effective batch"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> EffectiveBatch:
        """Return the word or the number."""
        if value in ("free", "keep"):
            return value
        if not re.fullmatch(r"[1-9]\d{0,8}", str(value)):
            self.fail(f"{value!r} is not free, keep or a number of samples.", param, ctx)
        return int(str(value))


class SettingsType(ParamType["dict[str, Value]"]):
    """Settings, from "batch_size=64,num_workers=2"."""

    name = "settings"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, Value]:
        """Return knob name to value."""
        from autotune.configuration.training_config import setting_faults

        settings = dict(value) if isinstance(value, dict) else self._parsed(str(value), param, ctx)
        faults = setting_faults(settings)
        if faults:
            self.fail(" ".join(faults.values()), param, ctx)
        return settings

    def _parsed(
        self, text: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, Value]:
        settings: dict[str, Value] = {}
        for part in text.split(","):
            name, equals, setting = part.partition("=")
            if not equals:
                self.fail(f"{part!r} is not a setting; write batch_size=64.", param, ctx)
            if name.strip() in settings:
                self.fail(f"{name.strip()} is given twice.", param, ctx)
            text = setting.strip()
            # The environment holds text, even where that looks like a number.
            is_text = name.strip().startswith("env.") and text != "null"
            settings[name.strip()] = text if is_text else _setting(text)
        return settings


class NameType(ParamType[str]):
    """One of some names; they are not asked for before the flag is given."""

    def __init__(self, name: str, known: Callable[[], Sequence[str]]) -> None:
        self.name, self._known = name, known

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Return the name; the flag's default is taken as it is."""
        if param is not None and value == param.default:
            return str(value)
        known, word = self._known(), str(value)
        if word not in known:
            hint = did_you_mean(word, known)
            self.fail(
                f"unknown {self.name} {word!r}.{hint} Give one of {', '.join(known)}.", param, ctx
            )
        return word


class InterpreterType(ParamType[Interpreter]):
    """A Python that can train, from its path, its name or the folder of its environment."""

    name = "interpreter"

    def __init__(self, oldest_torch: tuple[int, int]) -> None:
        self._oldest_torch = oldest_torch

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Interpreter:
        """Return the interpreter; that of this process for "".

        Raises:
            UsageError: it is none, or cannot train under autotune.
        """
        if isinstance(value, Interpreter):
            return value
        found = interpreter_at(str(value)) if value else own_interpreter()
        found.check(self._oldest_torch)
        return found


def folder_name(study: str) -> str:
    """Return a folder name that is safe on any file system; plain names stay as they are."""
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
    words: dict[str, Value] = {"true": True, "false": False, "null": None}
    if text in words:
        return words[text]
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    return float(text) if re.fullmatch(r"-?\d+\.\d+(e-?\d+)?|-?\d+e-?\d+", text) else text
