"""Command `report`: report the results of a study."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from autotune.commands.common import flag, option, write_new
from autotune.report.data import read_report
from autotune.report.explain import explanation
from autotune.report.html import page
from autotune.report.tables import csv_text, json_text
from autotune.report.terminal import show_both, show_report
from autotune.study.archive import find_study
from autotune.values.errors import UsageError
from autotune.values.text import clean

_STDOUT = "-"
_FORMS = {"html": page, "csv": csv_text, "json": json_text}
# Most columns of a line of prose: longer lines are hard to read.
_WIDEST = 100


@click.command(
    params=[
        click.Argument(["study"], required=False),
        click.Argument(["other"], required=False),
        option(
            "--study names",
            "Choose this study of a storage that holds several; a second --study chooses OTHER.",
            multiple=True,
        ),
        option("--html", "Write one page that opens offline.", metavar="FILE"),
        option("--csv", "Write one row for each trial; -: to stdout.", metavar="FILE|-"),
        option("--json", "Write all data for programs; -: to stdout.", metavar="FILE|-"),
        flag("--explain", "Explain the result in sentences."),
        flag("--force", "Overwrite existing files."),
    ]
)
def report(
    study: str | None,
    other: str | None,
    names: tuple[str, ...],
    force: bool,
    **outputs: Any,
) -> None:
    """Report the results of STUDY: a name, directory, study.db, best.yaml or storage URL.

    STUDY may be left out if there is only one here. Without an option, print a table. With OTHER,
    print both studies side by side. A search may run at the same time.
    """
    explain = outputs.pop("explain")
    wanted = {form: target for form, target in outputs.items() if target is not None}
    if other is not None and (wanted or explain):
        raise UsageError(
            f"{study} and {other}: two studies can only be shown in the terminal. Leave out the "
            "other options, or name one study."
        )
    if len(names) > (1 if other is None else 2):
        raise UsageError(f"--study {names[-1]}: give it once for STUDY, and once for OTHER.")
    if faults := [*_faults(wanted, explain, force)]:
        raise UsageError("\n".join(faults))
    of_first, of_other = (*names, None, None)[:2]
    data = read_report(find_study(study), of_first)
    if other is not None:
        show_both(data, read_report(find_study(other), of_other))
        return
    for form, target in wanted.items():
        # Names in a study may hold lone surrogates, which UTF-8 cannot encode.
        text = clean(_FORMS[form](data)).encode("utf-8", "replace").decode("utf-8")
        if target == _STDOUT:
            sys.stdout.write(text)
        else:
            write_new(Path(target), text, force)
            click.echo(f"Wrote {target}", err=True)
    if explain:
        _print_paragraphs(explanation(data))
    elif not wanted:
        show_report(data)


def _faults(wanted: Mapping[str, str], explain: bool, force: bool) -> Iterator[str]:
    """Yield why outputs exist, collide or cannot be written, before the study is read."""
    files = {form: Path(target) for form, target in wanted.items() if target != _STDOUT}
    for form, file in files.items():
        if file.exists() and not force:
            yield f"--{form} {file} exists. Choose another name, or overwrite it with --force."
        if not file.parent.is_dir():
            yield f"--{form} {file}: there is no directory {file.parent}. Make it first."
    piped = [f"--{form} -" for form, target in wanted.items() if target == _STDOUT]
    piped += ["--explain"] if explain else []
    if len(piped) > 1:
        yield f"{' and '.join(piped)} all write to stdout. Name a file for all but one."
    if len({file.resolve() for file in files.values()}) < len(files):
        yield "two outputs have the same file. Give each its own name."


def _print_paragraphs(paragraphs: list[str]) -> None:
    if sys.stdout.isatty():
        width = min(_WIDEST, shutil.get_terminal_size().columns)
        paragraphs = [textwrap.fill(text, width, break_on_hyphens=False) for text in paragraphs]
    sys.stdout.write(clean("\n\n".join(paragraphs)) + "\n")
