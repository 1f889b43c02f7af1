"""Commands that show things: `knobs`, `spaces`, `doctor` (machine facts) and `schema`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.commands import common
from autotune.values.errors import UsageError

if TYPE_CHECKING:
    from autotune.export.schema import Kind
    from autotune.values.outcome import Inspected
    from autotune.values.workload_facts import KnobFacts


@click.command()
@click.argument("model", type=click.Path(path_type=Path), required=False)
@common.DEVICE
@click.option(
    "--check",
    is_flag=True,
    help="Hold the KNOBS in MODEL's code to the contract of a knob: each value trains, is read "
    "back, and gives way to the default.",
)
def knobs(model: Path | None, device: str, check: bool) -> None:
    """List the knobs with their values on this machine; with MODEL, also those it cannot use."""
    from autotune.console.tables import show_checked, show_knobs

    if check:
        show_checked(_check(device, model))
        return
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


def _check(device: str, model: Path | None) -> Sequence[KnobFacts]:
    from autotune.commands.execute import check_knobs

    if model is None:
        raise UsageError("--check needs a MODEL: autotune knobs --check model.py")
    common.check_model(model)
    return check_knobs(device, model)


def _inspect(device: str, model: Path | None) -> Inspected:
    from autotune.commands.execute import inspect_once

    if model is not None:
        common.check_model(model)
    return inspect_once(device, model)
