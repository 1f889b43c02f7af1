"""Writes the answer in the words of other tools."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.errors import UsageError


@click.command()
@click.argument("best", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(["env", "json", "python"]), required=True)
@click.option("--strict", is_flag=True, help="Fail where the format cannot carry every setting.")
def export(best: Path, form: str, strict: bool) -> None:
    """Print the settings of BEST in a form that other tools read."""
    from autotune.best import read_best
    from autotune.export import export as exported_as

    exported = exported_as(read_best(best), form)
    if exported.dropped:
        message = f"--format {form} cannot carry {', '.join(exported.dropped)}"
        if strict:
            raise UsageError(f"{message}. Choose another --format, or go without --strict.")
        click.echo(f"autotune: {message}", err=True)
    click.echo(exported.text, nl=False)
