"""Commands that show what is here: `knobs`, `spaces`, `doctor` (machine facts)."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.commands import common, execute
from autotune.console import tables
from autotune.console.progress import signs_of_life
from autotune.context.inspection import inspect, inspection
from autotune.process.common.interpreter import Interpreter
from autotune.values.outcome import Inspected


@click.command()
@click.argument("model", type=click.Path(path_type=Path), required=False)
@common.DEVICE
@common.PYTHON
def knobs(model: Path | None, device: str, python: Interpreter) -> None:
    """List the knobs with their values on this machine; with MODEL, also those it cannot use."""
    if model is not None:
        common.check_model(model, python)
    inspected = _inspected(device, model, python)
    tables.show_knobs(inspected.machine, inspected.workload)


@click.command()
def spaces() -> None:
    """List the shipped search spaces."""
    tables.show_spaces()


@click.command()
@common.DEVICE
@common.PYTHON
def doctor(device: str, python: Interpreter) -> None:
    """Show the facts on this machine: device, cores, memory, torch."""
    tables.show_machine(_inspected(device, None, python).machine, python)


def _inspected(device: str, model: Path | None, python: Interpreter) -> Inspected:
    """Return facts on this machine and, with a model, on the workload.

    Raises:
        AutotuneError: see `autotune.context.inspection.inspect`.
    """
    with (
        execute.scratch_folder() as folder,
        signs_of_life("" if model else "a look at the machine"),
    ):
        runner = execute.one_runner(folder, python, warm=False)
        return inspect(runner, inspection(device, model), folder)
