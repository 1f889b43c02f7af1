"""Command `dashboard`: serve Optuna Dashboard on a study."""

from __future__ import annotations

import click

from autotune.commands import common
from autotune.process.stop import unwind_on_sigterm


@click.command(
    params=[
        click.Argument(["study"], required=False),
        common.option("--port", "Listen here; 0: any free port.", click.IntRange(0, 65535), 8080),
    ]
)
def dashboard(study: str | None, port: int) -> None:
    """Serve Optuna Dashboard on STUDY, read-only: a name, directory, study.db or storage URL.

    STUDY may be left out if there is only one here.
    """
    from autotune.process.common.interpreter import check_installed

    check_installed("optuna_dashboard", "autotune dashboard")
    from autotune.report.dashboard import serve
    from autotune.study.archive import find_study

    unwind_on_sigterm()
    serve(find_study(study), port)
