"""Commands `settings`, `spaces` and `doctor`: show the settings, the spaces and this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from autotune.commands import common, execute
from autotune.configuration.search_space import shipped_spaces
from autotune.console import tables
from autotune.console.progress import signs_of_life
from autotune.context.inspection import inspect, inspection
from autotune.knobs.base import spelled
from autotune.process.common.interpreter import SEARCHES, check_torch
from autotune.values.outcome import Inspected
from autotune.values.text import json_text


@click.command(
    params=[
        click.Argument(["model"], type=common.PATH, required=False),
        common.DEVICE,
        common.JSON,
    ]
)
def settings(model: Path | None, device: str, as_json: bool) -> None:
    """List the settings and their values on this machine; with MODEL, also what it cannot use."""
    if model is not None:
        common.check_model(model)
    inspected = _inspected(device, model)
    _show("settings", tables.knob_rows(inspected.machine, inspected.workload), as_json)


@click.command(params=[common.JSON])
def spaces(as_json: bool) -> None:
    """List the shipped search spaces."""
    _show("spaces", tables.space_rows(), as_json)
    if not as_json:
        place = shipped_spaces()["default"].parent
        click.echo(f"\nTo leave a setting out, delete it from your own copy of a file in {place}.")


@click.command(params=[common.DEVICE, common.JSON])
def doctor(device: str, as_json: bool) -> None:
    """Show what autotune finds on this machine: device, cores, memory, PyTorch."""
    machine = _inspected(device, None).machine
    if as_json:
        click.echo(json_text({"machine": asdict(machine)}))
    else:
        tables.show_machine(machine)


def _show(name: str, rows: Sequence[tables.Row], as_json: bool) -> None:
    """Print rows as a table, or as JSON: a list of objects below `name`."""
    if as_json:
        click.echo(json_text({name: rows}))
    else:
        cells = [
            [cell if isinstance(cell, str) else spelled(cell) for cell in row.values()]
            for row in rows
        ]
        tables.print_rows(cells, list(rows[0]))


def _inspected(device: str, model: Path | None) -> Inspected:
    """Return facts on this machine and, with a model, on the workload."""
    check_torch(SEARCHES)
    with (
        execute.scratch_folder() as folder,
        signs_of_life("" if model else "inspecting the machine"),
    ):
        runner = execute.one_runner(folder, warm=False)
        return inspect(runner, inspection(device, model), folder)
