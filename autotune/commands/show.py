"""Commands `settings`, `spaces` and `doctor`: show the settings, the spaces and this machine."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.commands import common, execute
from autotune.console import tables
from autotune.console.progress import signs_of_life
from autotune.context.inspection import inspect, inspection
from autotune.process.common.interpreter import Interpreter
from autotune.values.outcome import Inspected


@click.command(
    params=[
        click.Argument(["model"], type=common.PATH, required=False),
        *(common.DEVICE, common.PYTHON),
    ]
)
def settings(model: Path | None, device: str, python: Interpreter) -> None:
    """List the settings and their values on this machine; with MODEL, also what it cannot use."""
    if model is not None:
        common.check_model(model, python)
    inspected = _inspected(device, model, python)
    tables.show_knobs(inspected.machine, inspected.workload)


@click.command()
def spaces() -> None:
    """List the shipped search spaces."""
    tables.show_spaces()


@click.command(params=[common.DEVICE, common.PYTHON])
def doctor(device: str, python: Interpreter) -> None:
    """Show what autotune finds on this machine: device, cores, memory, PyTorch."""
    tables.show_machine(_inspected(device, None, python).machine, python)


def _inspected(device: str, model: Path | None, python: Interpreter) -> Inspected:
    """Return facts on this machine and, with a model, on the workload.

    Raises:
        AutotuneError: see `autotune.context.inspection.inspect`.
    """
    with (
        execute.scratch_folder() as folder,
        signs_of_life("" if model else "inspecting the machine"),
    ):
        runner = execute.one_runner(folder, python, warm=False)
        return inspect(runner, inspection(device, model), folder)
