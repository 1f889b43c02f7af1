"""Commands that show or check: `knobs`, `spaces`, `doctor` (machine facts), `schema`, `check`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.commands import common
from autotune.values.errors import UsageError

if TYPE_CHECKING:
    from autotune.export.schema import Kind
    from autotune.process.common.interpreter import Interpreter
    from autotune.values.outcome import Inspected


@click.command(short_help="List what can be tuned on this machine.")
@click.argument("model", type=click.Path(path_type=Path), required=False)
@common.DEVICE
@common.PYTHON
def knobs(model: Path | None, device: str, python: Interpreter) -> None:
    """List the knobs with their values on this machine; with MODEL, also those it cannot use."""
    from autotune.console.tables import show_knobs

    inspected = _inspect(device, model, python)
    show_knobs(inspected.machine, inspected.workload)


@click.command(short_help="List the shipped search spaces.")
def spaces() -> None:
    """List the shipped search spaces."""
    from autotune.console.tables import show_spaces

    show_spaces()


@click.command(short_help="Show the facts on this machine.")
@common.DEVICE
@common.PYTHON
def doctor(device: str, python: Interpreter) -> None:
    """Show the facts on this machine: device, cores, memory, torch."""
    from autotune.console.tables import show_machine

    show_machine(_inspect(device, None, python).machine, python)


@click.command(short_help="Print the JSON Schema of a file.")
@click.argument("kind", type=click.Choice(["best", "space"]))
def schema(kind: Kind) -> None:
    """Print the JSON Schema of best.yaml or of a search space, for editors and other programs."""
    from autotune.export.schema import schema

    click.echo(json.dumps(schema(kind), indent=2))


@click.command(short_help="Check files: best.yaml, search spaces.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--kind",
    type=click.Choice(["best", "space"]),
    help="Take every file for one of this kind. Default: a file with the key `autotune` is a "
    "best.yaml.",
)
def check(files: tuple[Path, ...], kind: Kind | None) -> None:
    """Check each of FILES: a best.yaml, or a search space.

    Exit with 2 if any has a fault; each is named with file, line and column. Nothing is measured,
    and values are not held against this machine.
    """
    faults = [fault for path in files if (fault := _fault_of(path, kind))]
    if faults:
        raise UsageError("\n".join(faults))


def _fault_of(path: Path, kind: Kind | None) -> str:
    """Return the faults of a file, a line each; "" if it can be used."""
    from autotune.configuration.best_config import read_best
    from autotune.configuration.search_space import read_space
    from autotune.values.strict_yaml import read

    try:
        names = read(path).value.keys()
        is_best = kind == "best" if kind else bool({"autotune", "unconfirmed"} & names)
        _ = read_best(path) if is_best else read_space(path)
    except UsageError as error:
        return str(error)
    return ""


def _inspect(device: str, model: Path | None, python: Interpreter) -> Inspected:
    from autotune.commands.execute import inspect_once

    if model is not None:
        common.check_model(model)
    return inspect_once(device, model, python)
