"""Command `profile`: show what bounds training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from autotune.commands import common
from autotune.console.interrupts import unwind_on_sigterm


@click.command()
@common.MODEL
@common.SPACE
@common.DEVICE
@common.BASELINE
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    help="Write a Chrome trace of the steps to this file.",
)
def profile(model: Path, trace: Path | None, **flags: Any) -> None:
    """Show what bounds MODEL's training, which knobs cannot matter, and the costly operators."""
    from autotune.commands.execute import execute_profile

    unwind_on_sigterm()
    execute_profile(common.options_of(model, **flags), trace)
