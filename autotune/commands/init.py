"""Command `init`: write a model.py to start from."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.process.common.trial_folder import write_atomically
from autotune.values.errors import UsageError


@click.command(short_help="Write a model.py to start from.")
@click.argument("path", type=click.Path(path_type=Path), default=Path("model.py"))
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def init(path: Path, force: bool) -> None:
    """Write a commented model.py to start from."""
    if (path.exists() or path.is_symlink()) and not force:
        raise UsageError(f"{path} exists already. Choose another name, or overwrite with --force.")
    template = Path(__file__).parents[1] / "model_template.py"
    try:
        write_atomically(path, template.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
    click.echo(f"Wrote {path}. Next: autotune search {path} --space quick", err=True)
