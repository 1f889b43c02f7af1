"""Command `export`: write the settings of a best.yaml for other tools."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.commands import common
from autotune.configuration.best_config import edited, read_best
from autotune.export import FORMATS
from autotune.export import export as exported_as
from autotune.values.errors import UsageError
from autotune.values.text import json_text


@click.command(
    params=[
        click.Argument(["best"], type=common.PATH),
        common.option(
            "--format form",
            "Write for this tool.",
            click.Choice([*FORMATS, "patch"]),
            required=True,
        ),
        common.flag("--strict", "Fail if the format cannot carry every setting. Default: warn."),
        common.option("--out", "Write to this new file. Default: stdout.", common.PATH),
        common.flag("--force", "Let --out overwrite an existing file."),
        common.JSON,
    ]
)
def export(
    best: Path, form: str, strict: bool, out: Path | None, force: bool, as_json: bool
) -> None:
    """Write the settings of BEST for another tool."""
    answer = read_best(best)
    for text in edited(answer):
        common.say(f"edited since the search: {text}")
    exported = exported_as(answer, form)
    if exported.dropped:
        lines = [f"--format {form} cannot carry", *(f"  {d}" for d in exported.dropped.values())]
        if strict:
            raise UsageError("\n".join([*lines, "Choose another --format, or leave out --strict."]))
        common.say("\n".join(lines))
    if out is not None:
        common.write_new(out, exported.text, force)
    if as_json:
        told = {"format": form, "text": exported.text, "dropped": dict(exported.dropped)}
        click.echo(json_text({**told, "path": out and str(out)}))
    elif out is None:
        click.echo(exported.text, nl=False)
