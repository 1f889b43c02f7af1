"""Commands that show things: `knobs`, `spaces`, `doctor` (machine facts) and `schema`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.commands import common

if TYPE_CHECKING:
    from autotune.export.schema import Kind
    from autotune.values.outcome import Inspected


@click.command()
@click.argument("model", type=click.Path(path_type=Path), required=False)
@common.DEVICE
def knobs(model: Path | None, device: str) -> None:
    """List the knobs with their values on this machine; with MODEL, also those it cannot use."""
    from autotune.console.tables import show_knobs

    inspected = _inspect(device, model)
    show_knobs(inspected.machine, inspected.workload)


@click.command()
def spaces() -> None:
    """List the shipped search spaces."""
    from autotune.console.tables import show_spaces

    show_spaces()


@click.command()
@common.DEVICE
def doctor(device: str) -> None:
    """Show the facts on this machine: device, cores, memory, torch."""
    from autotune.console.tables import show_machine

    show_machine(_inspect(device, None).machine)


@click.command()
@click.argument("kind", type=click.Choice(["best", "space"]))
def schema(kind: Kind) -> None:
    """Print the JSON Schema of best.yaml or of a search space, for editors and other programs."""
    from autotune.export.schema import schema

    click.echo(json.dumps(schema(kind), indent=2))


def _inspect(device: str, model: Path | None) -> Inspected:
    from autotune.commands.execute import inspect_once

    if model is not None:
        common.check_model(model)
    return inspect_once(device, model)
