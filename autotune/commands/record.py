"""Measures a whole space into a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from autotune.commands import common
from autotune.errors import UsageError


@click.command()
@common.MODEL
@common.SPACE
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Such as table.jsonl.")
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Processes for each configuration.",
)
@common.DEVICE
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, help="Of the order.")
def record(model: Path, out: Path, repeats: int, **flags: Any) -> None:
    """Measure every configuration of a space into a table for replays; continues it."""
    from autotune.drive import drive_recording

    if out.suffix != ".jsonl":
        raise UsageError(f"--out {out} must end in .jsonl; pack it with xz when it is complete.")
    options = common.options_of(model, out=out, **flags)
    common.unwind_on_sigterm()
    drive_recording(options, repeats)
