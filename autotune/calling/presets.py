"""Maps for families of scripts, shipped as YAML files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autotune.calling.flag import Flag, flag_from
from autotune.values.errors import UsageError
from autotune.values.strict_yaml import read
from autotune.values.text import did_you_mean


def shipped_presets() -> dict[str, Path]:
    """Return name to file of the presets."""
    package = Path(__file__).parents[1]
    # A wheel has them in the package, a checkout beside it.
    folders = (package / "presets", package.parent / "presets")
    folder = next(folder for folder in folders if folder.is_dir())
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def with_preset(name: str | None, own: Sequence[Flag]) -> tuple[Flag, ...]:
    """Return the user's own maps, and those of a preset for the knobs that these leave.

    Raises:
        UsageError: there is no such preset.
    """
    if name is None:
        return tuple(own)
    shipped = shipped_presets()
    if name not in shipped:
        raise UsageError(
            f"--preset {name!r} is none of {', '.join(shipped)}.{did_you_mean(name, shipped)}"
        )
    maps = read(shipped[name]).value["map"]
    # A setting may take several words, such as --amp --amp-dtype=bfloat16.
    ways = [(knob, way if isinstance(way, list) else [way]) for knob, way in maps.items()]
    preset = [flag_from(f"{knob}={word}") for knob, words in ways for word in words]
    mapped = {flag.knob for flag in own}
    return (*own, *(flag for flag in preset if flag.knob not in mapped))
