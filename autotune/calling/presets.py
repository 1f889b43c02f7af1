"""Maps of batches for families of scripts, shipped as YAML files."""

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


def preset_maps(name: str | None, own: Sequence[Flag]) -> tuple[Flag, ...]:
    """Return the maps of a preset, except for knobs that the user's own maps name.

    Raises:
        UsageError: there is no such preset.
    """
    if name is None:
        return ()
    shipped = shipped_presets()
    if name not in shipped:
        raise UsageError(
            f"--preset {name!r} is none of {', '.join(shipped)}.{did_you_mean(name, shipped)}"
        )
    maps = read(shipped[name]).value["map"]
    preset = [flag_from(f"{knob}={way}") for knob, way in maps.items()]
    mapped = {flag.knob for flag in own}
    return tuple(flag for flag in preset if flag.knob not in mapped)
