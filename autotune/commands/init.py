"""Command `init`: write a model.py to start from."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.commands import common


@click.command(
    params=[
        click.Argument(["path"], type=common.PATH, default=Path("model.py")),
        common.flag("--force", "Overwrite an existing file."),
    ]
)
def init(path: Path, force: bool) -> None:
    """Write a commented model.py to start from."""
    template = Path(__file__).parents[1] / "model_template.py"
    common.write_new(path, template.read_text(encoding="utf-8"), force)
    click.echo(f"Wrote {path}. Next: autotune search {path} --space quick", err=True)
