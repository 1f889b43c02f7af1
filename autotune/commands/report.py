"""Command `report`: report the results of a study."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from autotune.commands.common import flag, option, write_new
from autotune.report.data import csv_text, json_text, read_report, show_report
from autotune.report.html import page
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

    STUDY may be left out if there is only one here. Without an option, print a table. A search
    may be running.
    """
    wanted = {form: target for form, target in outputs.items() if target is not None}
    piped = [f"--{form} -" for form, target in wanted.items() if target == _STDOUT]
    if len(piped) > 1:
        raise UsageError(f"{' and '.join(piped)} both write to stdout. Name a file for one.")
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
