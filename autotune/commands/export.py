"""Writes the answer in the words of other tools."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.commands import common
from autotune.errors import UsageError
from autotune.text import clean

_FORMATS = (
    "hf",
    "accelerate",
    "lightning",
    "timm",
    "deepspeed",
    "torchrun",
    "env",
    "json",
    "python",
)


@click.command()
@click.argument("best", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(_FORMATS), required=True)
@click.option("--strict", is_flag=True, help="Fail where the format cannot carry every setting.")
@click.option("--out", type=click.Path(path_type=Path), help="Write a new file, not to stdout.")
@click.option("--force", is_flag=True, help="Let --out overwrite an existing file.")
def export(best: Path, form: str, strict: bool, out: Path | None, force: bool) -> None:
    """Write the settings of BEST in a form that other tools read."""
    from autotune.best import read_best
    from autotune.export import export as exported_as

    exported = exported_as(read_best(best), form)
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
