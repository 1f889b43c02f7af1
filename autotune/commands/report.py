"""Tells what a study found."""

from __future__ import annotations

import shutil
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from autotune.report.data import ReportData

_STDOUT = "-"
# Sentences over the whole of a wide terminal are hard to read.
_WIDEST = 100


@click.command()
@click.argument("study")
@click.option("--study", "name", help="Of a storage that holds several: the name of one.")
@click.option("--html", metavar="FILE", help="One page that opens offline.")
@click.option("--csv", metavar="FILE|-", help="One row per trial.")
@click.option("--json", metavar="FILE|-", help="Everything, for programs.")
@click.option("--explain", is_flag=True, help="Say in sentences why the winner won.")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def report(study: str, name: str | None, explain: bool, force: bool, **outputs: str | None) -> None:
    """Tell what STUDY found: a name, its folder, its study.db, a best.yaml or a storage URL.

    Without an option: a table in the terminal. A search may be running meanwhile.
    """
    from autotune.report.data import read_report
    from autotune.report.source import find_source

    wanted = {form: target for form, target in outputs.items() if target is not None}
    _check(wanted, explain, force)
    data = read_report(find_source(study), name)
    for form, target in wanted.items():
        _write(target, _FORMS[form](data))
    if explain:
        _tell(data)
    elif not wanted:
        from autotune.report.terminal import show_report

        show_report(data)


def _check(wanted: Mapping[str, str], explain: bool, force: bool) -> None:
    """Refuse what cannot be written, before a study is read.

    Raises:
        UsageError: everything that is wrong with the flags.
    """
    faults = [
        f"--{form} {target} exists already. Choose another name, or overwrite with --force."
        for form, target in wanted.items()
        if target != _STDOUT and Path(target).exists() and not force
    ]
    faults += [
        f"--{form} {target}: there is no folder {Path(target).parent}. Make it first."
        for form, target in wanted.items()
        if target != _STDOUT and not Path(target).parent.is_dir()
    ]
    piped = [f"--{form} -" for form, target in wanted.items() if target == _STDOUT]
    piped += ["--explain"] if explain else []
    if len(piped) > 1:
        faults.append(f"{' and '.join(piped)} all write to stdout. Name a file for all but one.")
    files = [Path(target).resolve() for target in wanted.values() if target != _STDOUT]
    if len(set(files)) < len(files):
        faults.append("two outputs have the same file. Give each a name of its own.")
    if faults:
        raise UsageError("\n".join(faults))


def _write(target: str, text: str) -> None:
    from autotune.text import clean
    from autotune.trial_folder import write_atomically

    # Names in a study may hold half of a surrogate pair, which is no UTF-8.
    text = clean(text).encode("utf-8", "replace").decode("utf-8")
    if target == _STDOUT:
        sys.stdout.write(text)
        return
    try:
        write_atomically(Path(target), text)
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}.") from error
    click.echo(f"Wrote {target}", err=True)


def _tell(data: ReportData) -> None:
    from autotune.report.explain import explanation
    from autotune.text import clean

    paragraphs = [clean(paragraph) for paragraph in explanation(data)]
    if sys.stdout.isatty():
        width = min(_WIDEST, shutil.get_terminal_size().columns)
        paragraphs = [textwrap.fill(text, width, break_on_hyphens=False) for text in paragraphs]
    sys.stdout.write("\n\n".join(paragraphs) + "\n")


def _html(data: ReportData) -> str:
    from autotune.report.html import page

    return page(data)


def _csv(data: ReportData) -> str:
    from autotune.report.frame import trials_frame

    return trials_frame(data).to_csv(index=False, lineterminator="\n")


def _json(data: ReportData) -> str:
    from autotune.report.summary import summary

    return summary(data) + "\n"


_FORMS: Mapping[str, Callable[[ReportData], str]] = {"html": _html, "csv": _csv, "json": _json}
