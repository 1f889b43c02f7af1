"""Command `profile`: show what bounds training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from autotune.commands import common
from autotune.commands import script_options as scripts
from autotune.console.interrupts import unwind_on_sigterm
from autotune.values.errors import UsageError


@click.command(
    cls=scripts.ScriptCommand,
    options_metavar="[OPTIONS]",
    short_help="Show what bounds a training.",
)
@common.MODEL
@common.SPACE
@common.DEVICE
@common.PYTHON
@common.BASELINE
@common.PROCESSES
@scripts.AS_MODULE
@scripts.MAP
@scripts.PRESET
@scripts.WORKDIR
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    help="Write a Chrome trace of the steps to this file.",
)
def profile(model: Path, trace: Path | None, **flags: Any) -> None:
    """Show what bounds MODEL's training, which knobs cannot matter, and the costly operators.

    MODEL is a model.py, or an unchanged training script, whose arguments follow a `--`. A script
    may also be an installed command, or with -m a module.
    """
    from autotune.commands.execute import execute_profile

    model, script = scripts.called_script(model, flags)
    _check_trace(trace)
    unwind_on_sigterm()
    execute_profile(common.options_of(model, **flags, script=script), trace)


def _check_trace(trace: Path | None) -> None:
    if trace is not None and trace.is_dir():
        raise UsageError(
            f"--trace {trace} is a folder. Name a file, such as {trace / 'trace.json'}."
        )
    if trace is not None and not trace.parent.is_dir():
        raise UsageError(f"--trace {trace}: there is no folder {trace.parent}. Make it first.")
