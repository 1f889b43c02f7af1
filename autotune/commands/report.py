"""Command `report`: report the results of a study."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from autotune.commands.common import flag, option, write_new
from autotune.report.data import read_report
from autotune.report.html import page
from autotune.report.tables import csv_text, json_text
from autotune.report.terminal import show_report
from autotune.study.archive import find_study
from autotune.values.errors import UsageError
from autotune.values.text import clean

_STDOUT = "-"
_FORMS = {"html": page, "csv": csv_text, "json": json_text}


@click.command(
    params=[
        click.Argument(["study"], required=False),
        option("--study name", "Choose this of several studies in a storage.", metavar="NAME"),
        option("--html", "Write one page that opens offline.", metavar="FILE"),
        option("--csv", "Write one row for each trial; -: to stdout.", metavar="FILE|-"),
        option("--json", "Write all data for programs; -: to stdout.", metavar="FILE|-"),
        flag("--force", "Overwrite existing files."),
    ]
)
def report(study: str | None, name: str | None, force: bool, **outputs: str | None) -> None:
    """Report the results of STUDY: a name, directory, study.db, best.yaml or storage URL.

    STUDY may be left out if there is only one here. Without an option, print a table. A search may
    run at the same time.
    """
    wanted = {form: target for form, target in outputs.items() if target is not None}
    if faults := [*_faults(wanted, force)]:
        raise UsageError("\n".join(faults))
    data = read_report(find_study(study), name)
    for form, target in wanted.items():
        # Names in a study may hold lone surrogates, which UTF-8 cannot encode.
        text = clean(_FORMS[form](data)).encode("utf-8", "replace").decode("utf-8")
        if target == _STDOUT:
            sys.stdout.write(text)
        else:
            write_new(Path(target), text, force)
            click.echo(f"Wrote {target}", err=True)
    if not wanted:
        show_report(data)


def _faults(wanted: Mapping[str, str], force: bool) -> Iterator[str]:
    """Yield why outputs exist, collide or cannot be written, before the study is read."""
    files = {form: Path(target) for form, target in wanted.items() if target != _STDOUT}
    for form, file in files.items():
        if file.exists() and not force:
            yield f"--{form} {file} exists. Choose another name, or overwrite it with --force."
        if not file.parent.is_dir():
            yield f"--{form} {file}: there is no directory {file.parent}. Make it first."
    piped = [f"--{form} -" for form, target in wanted.items() if target == _STDOUT]
    if len(piped) > 1:
        yield f"{' and '.join(piped)} all write to stdout. Name a file for all but one."
    if len({file.resolve() for file in files.values()}) < len(files):
        yield "two outputs have the same file. Give each its own name."
