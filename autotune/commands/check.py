"""Commands on the formats of files: `check` finds faults, `schema` prints a JSON Schema."""

from __future__ import annotations

import json
from pathlib import Path

import click

from autotune.commands import common
from autotune.configuration.best_config import read_best
from autotune.configuration.search_space import read_space
from autotune.export import schema as schemas
from autotune.values.errors import UsageError
from autotune.values.strict_yaml import read

_KIND = click.Choice(["best", "space"])


@click.command(params=[click.Argument(["kind"], type=_KIND)])
def schema(kind: schemas.Kind) -> None:
    """Print the JSON Schema of best.yaml or of a search space, for editors and other programs."""
    click.echo(json.dumps(schemas.schema(kind), indent=2))


@click.command(
    params=[
        click.Argument(["files"], nargs=-1, required=True, type=common.PATH),
        common.option(
            "--kind",
            "Read every file as one of this kind. Default: a file with the key `autotune` is a "
            "best.yaml, any other a search space.",
            _KIND,
        ),
    ]
)
def check(files: tuple[Path, ...], kind: schemas.Kind | None) -> None:
    """Check each of FILES: a best.yaml, or a search space.

    Report each fault with file, line and column, and exit with 2 if there is any. Nothing is
    measured, and values are not checked against this machine.
    """
    faults = []
    for path in files:
        try:
            names = read(path).value.keys()
            is_best = kind == "best" if kind else bool({"autotune", "unconfirmed"} & names)
            _ = read_best(path) if is_best else read_space(path)
        except UsageError as error:
            faults.append(str(error))
    if faults:
        raise UsageError("\n".join(faults))
