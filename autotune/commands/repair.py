"""Makes a study's database anew from what was written down before it was told."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.commands import common
from autotune.errors import UsageError


@click.command()
@click.argument("study")
def repair(study: str) -> None:
    """Rebuild the database of STUDY, a name or a folder, from its results.jsonl."""
    from autotune.progress import repair_lines, to_stderr
    from autotune.tuning.storing.lock import study_lock
    from autotune.tuning.storing.repair import repair as repaired

    own = common.study_folder(study)
    folder = own if own.is_dir() else Path(study)
    if not folder.is_dir():
        raise UsageError(f"{study!r} is no study: there is neither {own} nor a folder {study}.")
    with study_lock(folder):
        for line in repair_lines(repaired(folder)):
            to_stderr(line)
