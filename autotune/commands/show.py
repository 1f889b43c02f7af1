"""Commands `settings`, `spaces` and `doctor`: show the settings, the spaces and this machine."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.commands import common, execute
from autotune.console import tables
from autotune.console.progress import signs_of_life
from autotune.context.inspection import inspect, inspection
from autotune.process.common.interpreter import SEARCHES, check_torch
from autotune.values.outcome import Inspected


@click.command(
    params=[
        click.Argument(["model"], type=common.PATH, required=False),
        common.DEVICE,
    ]
)
def settings(model: Path | None, device: str) -> None:
    """List the settings and their values on this machine; with MODEL, also what it cannot use."""
    if model is not None:
        common.check_model(model)
    inspected = _inspected(device, model)
    tables.show_knobs(inspected.machine, inspected.workload)


@click.command()
def spaces() -> None:
    """List the shipped search spaces."""
    tables.show_spaces()


@click.command(params=[common.DEVICE])
def doctor(device: str) -> None:
    """Show what autotune finds on this machine: device, cores, memory, PyTorch."""
    tables.show_machine(_inspected(device, None).machine)


def _inspected(device: str, model: Path | None) -> Inspected:
    """Return facts on this machine and, with a model, on the workload.

    Raises:
        AutotuneError: see `autotune.context.inspection.inspect`.
    """
    check_torch(SEARCHES)
    with (
        execute.scratch_folder() as folder,
        signs_of_life("" if model else "inspecting the machine"),
    ):
        runner = execute.one_runner(folder, warm=False)
        return inspect(runner, inspection(device, model), folder)
