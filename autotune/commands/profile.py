"""Says what bounds training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from autotune.commands import common


@click.command()
@common.MODEL
@common.SPACE
@common.DEVICE
@common.BASELINE
@click.option("--trace", type=click.Path(path_type=Path), help="Write a Chrome trace there.")
def profile(model: Path, trace: Path | None, **flags: Any) -> None:
    """Say what bounds MODEL's training, what cannot matter, and which operators take the time."""
    from autotune.drive import drive_profile

    common.unwind_on_sigterm()
    drive_profile(common.options_of(model, **flags), trace)
