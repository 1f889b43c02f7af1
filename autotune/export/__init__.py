"""Write a result in the forms that other tools read, and name the settings that a form lacks.

To add a form, write a function from `BestConfig` to `Exported` and list it in `FORMATS`.
"""

from __future__ import annotations

from collections.abc import Callable

from autotune import __version__
from autotune.configuration.best_config import BestConfig, edited
from autotune.export import formats
from autotune.export.formats import Exported
from autotune.export.patch import to_patch

FORMATS: dict[str, Callable[[BestConfig], Exported]] = {
    "hf": formats.to_hf,
    "accelerate": formats.to_accelerate,
    "lightning": formats.to_lightning,
    "torchrun": formats.to_torchrun,
    "env": formats.to_env,
    "json": formats.to_json,
    "python": formats.to_python,
}


def export(best: BestConfig, form: str) -> Exported:
    """Return the settings of `best` in one of `FORMATS`, or as a "patch" of its script.

    A comment above them, except in JSON, has their origin, their use and the settings left out.
    """
    exported = to_patch(best) if form == "patch" else FORMATS[form](best)
    if form == "json":
        return exported
    machine, source = best.machine, best.provenance
    lines = [
        f"autotune {__version__} export --format {form}, trial {source.trial} of study "
        f"{source.study}",
        f"measured on {machine.device} ({machine.cpu}, {machine.cores} cores), "
        f"torch {machine.torch}, machine {machine.fingerprint}",
        *(f"edited since, and not measured: {text}" for text in edited(best)),
    ]
    if exported.use:
        lines.append(f"use: {exported.use}")
    if exported.dropped:
        lines.append("not carried, set these yourself:")
        lines += [f"  {way}" for way in exported.dropped.values()]
    # Other characters could end a comment in some language.
    header = "".join(
        f"# {''.join(one if one.isprintable() else '?' for one in line)}\n" for line in lines
    )
    return Exported(header + exported.text, exported.dropped, exported.use)
