"""Command `report`: report the results of a study."""

from __future__ import annotations

import shutil
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autotune.values.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from autotune.report.data import ReportData

_STDOUT = "-"
# Most columns of a line of prose: longer lines are hard to read.
_WIDEST = 100


@click.command()
@click.argument("study", required=False)
@click.argument("other", required=False)
@click.option(
    "--study",
    "names",
    multiple=True,
    help="Choose this study in a storage that holds several; a second --study chooses OTHER.",
)
@click.option("--html", metavar="FILE", help="Write one page that opens offline.")
@click.option("--csv", metavar="FILE|-", help="Write one row per trial; -: to stdout.")
@click.option("--json", metavar="FILE|-", help="Write all data for programs; -: to stdout.")
@click.option(
    "--tensorboard",
    metavar="FOLDER",
    help="Write settings and numbers of the trials for TensorBoard; needs the package tensorboard.",
)
@click.option("--explain", is_flag=True, help="Explain the result in sentences.")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def report(
    study: str | None,
    other: str | None,
    names: tuple[str, ...],
    tensorboard: str | None,
    force: bool,
    **outputs: Any,
) -> None:
    """Report the results of STUDY: a name, folder, study.db, best.yaml or storage URL.

    STUDY may be left out if there is one study here. Without an option, print a table. With OTHER,
    print both studies side by side. A search may run at the same time.
    """
    from autotune.report.data import read_report
    from autotune.study.archive import find_study

    explain = outputs.pop("explain")
    wanted = {form: target for form, target in outputs.items() if target is not None}
    if other is not None and (wanted or explain or tensorboard):
        raise UsageError(
            f"{study} and {other}: two studies are shown side by side in the terminal alone. Leave "
            "out the other options, or name one study."
        )
    if len(names) > (1 if other is None else 2):
        raise UsageError(f"--study {names[-1]}: give it once for each study, STUDY and OTHER.")
    _check(wanted, explain, force, tensorboard)
    of_first, of_other = (*names, None, None)[:2]
    data = read_report(find_study(study), of_first)
    if other is not None:
        from autotune.report.terminal import show_both

        show_both(data, read_report(find_study(other), of_other))
        return
    for form, target in wanted.items():
        _write(target, _FORMS[form](data))
    if tensorboard is not None:
        _write_events(data, Path(tensorboard))
    if explain:
        _tell(data)
    elif not wanted and tensorboard is None:
        from autotune.report.terminal import show_report

        show_report(data)


def _check(wanted: Mapping[str, str], explain: bool, force: bool, tensorboard: str | None) -> None:
    """Check the outputs before the study is read.

    Raises:
        UsageError: outputs exist, collide or cannot be written; all faults are named.
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
    faults += [] if tensorboard is None else _folder_faults(Path(tensorboard), force)
    if faults:
        raise UsageError("\n".join(faults))


def _folder_faults(folder: Path, force: bool) -> Iterator[str]:
    """Yield why nothing can be written for TensorBoard into a folder."""
    from autotune.export.tensorboard import own_files
    from autotune.process.common.interpreter import how_to_get, is_installed

    if not is_installed("tensorboard"):
        yield f"--tensorboard needs {how_to_get('tensorboard')}"
    if folder.exists() and not folder.is_dir():
        yield f"--tensorboard {folder} is a file. Name a folder."
    elif own_files(folder) and not force:
        yield (
            f"--tensorboard {folder} holds an earlier report. Choose another folder, or replace it "
            "with --force."
        )
    elif not folder.exists() and not folder.parent.is_dir():
        yield f"--tensorboard {folder}: there is no folder {folder.parent}. Make it first."


def _write_events(data: ReportData, folder: Path) -> None:
    from autotune.export.tensorboard import write_events

    try:
        write_events(data, folder)
    except OSError as error:
        raise UsageError(f"--tensorboard {folder} cannot be written: {error.strerror}.") from error
    click.echo(f"Wrote {folder}; look at it with: tensorboard --logdir {folder}", err=True)


def _write(target: str, text: str) -> None:
    from autotune.process.common.trial_folder import write_atomically
    from autotune.values.text import clean

    # Names in a study may hold lone surrogates, which UTF-8 cannot encode.
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
    from autotune.values.text import clean

    paragraphs = [clean(paragraph) for paragraph in explanation(data)]
    if sys.stdout.isatty():
        width = min(_WIDEST, shutil.get_terminal_size().columns)
        paragraphs = [textwrap.fill(text, width, break_on_hyphens=False) for text in paragraphs]
    sys.stdout.write("\n\n".join(paragraphs) + "\n")


def _html(data: ReportData) -> str:
    from autotune.report.html import page

    return page(data)


def _csv(data: ReportData) -> str:
    from autotune.report.tables import csv_text

    return csv_text(data)


def _json(data: ReportData) -> str:
    from autotune.report.tables import json_text

    return json_text(data) + "\n"


_FORMS: Mapping[str, Callable[[ReportData], str]] = {"html": _html, "csv": _csv, "json": _json}
