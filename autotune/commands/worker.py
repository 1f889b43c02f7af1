"""One more device or host works on a study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.commands import common
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.live import Mode


@click.command()
@click.argument("study")
@click.option("--storage", required=True, help="Of the search: postgresql://user@host/database.")
@click.option(
    "--model", required=True, type=click.Path(path_type=Path), help="The same file as the search's."
)
@click.option("--device", default="auto", help="auto, cpu, cuda:N, or cores such as cpu:0-3.")
@click.option(
    "--allow-mixed",
    is_flag=True,
    help="Join a study of the same name that a search on this kind of machine leads.",
)
@click.option("--progress", type=click.Choice(["auto", "plain", "none"]), default="auto")
def worker(
    study: str, storage: str, model: Path, device: str, allow_mixed: bool, progress: Mode
) -> None:
    """Run trials of STUDY, which an `autotune search` with the same --storage leads."""
    from autotune.drive import drive_worker
    from autotune.tuning.running.devices import Device, devices_of
    from autotune.tuning.workers import WorkerOptions

    common.check_model(model)
    chosen = [Device(device)] if device == "auto" else devices_of(device)
    if len(chosen) > 1:
        raise UsageError(f"--device {device}: a worker has one device; start a worker for each.")
    folder = common.study_folder(study)
    options = WorkerOptions(study, storage, model, folder, chosen[0], allow_mixed)
    drive_worker(options, progress)
