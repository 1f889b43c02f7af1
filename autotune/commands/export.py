"""Command `export`: write the settings of a best.yaml for other tools."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.commands import common
from autotune.values.errors import UsageError
from autotune.values.text import clean

_FORMATS = (
    "hf",
    "accelerate",
    "lightning",
    "torchrun",
    "env",
    "json",
    "python",
)


@click.command()
@click.argument("best", type=click.Path(path_type=Path))
@click.option(
    "--format", "form", type=click.Choice(_FORMATS), required=True, help="Write for this tool."
)
@click.option(
    "--strict",
    is_flag=True,
    help="Fail if the format cannot carry every setting. Default: warn.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Write to this new file. Default: stdout."
)
@click.option("--force", is_flag=True, help="Let --out overwrite an existing file.")
def export(best: Path, form: str, strict: bool, out: Path | None, force: bool) -> None:
    """Write the settings of BEST for another tool."""
    from autotune.configuration.best_config import read_best
    from autotune.configuration.mismatch import edited
    from autotune.export import export as exported_as

    answer = read_best(best)
    for text in edited(answer):
        click.echo(clean(f"autotune: edited since the search: {text}"), err=True)
    exported = exported_as(answer, form)
    if exported.dropped:
        lines = [f"--format {form} cannot carry", *(f"  {d}" for d in exported.dropped.values())]
        message = "\n".join(lines)
        if strict:
            raise UsageError(f"{message}\nChoose another --format, or go without --strict.")
        click.echo(clean(f"autotune: {message}"), err=True)
    if out is None:
        click.echo(exported.text, nl=False)
    else:
        common.write_new(out, exported.text, force)
