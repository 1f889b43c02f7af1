"""Command `check`: find the faults of files."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.commands import common
from autotune.configuration.best_config import read_best
from autotune.configuration.search_space import read_space
from autotune.values.errors import UsageError
from autotune.values.strict_yaml import read
from autotune.values.text import json_text


@click.command(
    params=[
        click.Argument(["files"], nargs=-1, required=True, type=common.PATH),
        common.JSON,
    ]
)
def check(files: tuple[Path, ...], as_json: bool) -> None:
    """Check each of FILES: a best.yaml, if it has the key `autotune`, else a search space.

    Report each fault with file, line and column, and exit with 2 if there is any. Nothing is
    measured, and values are not checked against this machine.
    """
    faults = []
    for path in files:
        try:
            is_best = {"autotune", "unconfirmed"} & read(path).value.keys()
            _ = read_best(path) if is_best else read_space(path)
        except UsageError as error:
            faults.append(str(error))
    if faults:
        raise UsageError("\n".join(faults))
    if as_json:
        click.echo(json_text({"valid": list(map(str, files))}))
