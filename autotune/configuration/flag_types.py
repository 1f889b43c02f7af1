"""Parameter types of the command line: durations, sizes, shares, tolerances, settings."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from autotune.configuration.constraints import Tolerance
    from autotune.knobs.base import Value

_SECONDS = {"s": 1, "m": 60, "h": 3600}
_BYTES = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SLUG_LENGTH = 40


class Duration(click.ParamType[float]):
    """Seconds, from "90s", "10m" or "1.5h"; from Python also a number."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return seconds."""
        if _is_number(value):
            value = f"{value}s"
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", str(value))
        if not match or not float(match[1]):
            self.fail(f"{value!r} is not a duration; write 90s, 10m or 1.5h.", param, ctx)
        return float(match[1]) * _SECONDS[match[2]]


class Size(click.ParamType[int]):
    """Bytes, from "2GiB", "512MiB" or a plain number."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Return bytes."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(|KiB|MiB|GiB|TiB)", str(value))
        if not match or not float(match[1]):
            self.fail(f"{value!r} is not a size; write 512MiB or 2GiB.", param, ctx)
        return int(float(match[1]) * _BYTES[match[2]])


class Share(click.ParamType[float]):
    """A share from 0 to below 1, from "8%" or "0.08"."""

    name = "share"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the share, from 0 to below 1."""
        share, _ = _amount(value)
        if share is None or not 0 <= share < 1:
            self.fail(f"{value!r} is not a share below one; write 8% or 0.08.", param, ctx)
        return share


class ToleranceType(click.ParamType["Tolerance"]):
    """A tolerance, from "1%" (of the baseline) or "0.01" (absolute)."""

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


class SettingsType(click.ParamType["dict[str, Value]"]):
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
                self.fail(f"{name.strip()} stands twice.", param, ctx)
            settings[name.strip()] = _setting(setting.strip())
        return settings


def folder_name(study: str) -> str:
    """Return a folder name that is safe on any file system; plain names stay as they are."""
    if _PLAIN_NAME.fullmatch(study):
        return study
    slug = re.sub(r"[^A-Za-z0-9]+", "-", study).strip("-")[:_SLUG_LENGTH] or "study"
    return f"{slug}-{hashlib.sha256(study.encode(errors='replace')).hexdigest()[:8]}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


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
    return int(text) if re.fullmatch(r"-?\d+", text) else text
