"""Command `worker`: run trials of a study on one more device or host."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autotune.commands import common
from autotune.commands import script_options as scripts
from autotune.values.errors import UsageError

if TYPE_CHECKING:
    from autotune.console.live import Mode


@click.command(
    cls=scripts.ScriptCommand,
    options_metavar="[OPTIONS]",
)
@click.argument("study")
@click.option(
    "--storage",
    required=True,
    help="Use the storage of the search, postgresql://user@host/database.",
)
@click.option(
    "--model",
    required=True,
    type=click.Path(path_type=Path),
    help="Train this, the same as the search.",
)
@scripts.AS_MODULE
@click.option(
    "--device",
    default="auto",
    show_default=True,
    help="Use this device: auto, cpu, cuda:N, or cores such as cpu:0-3.",
)
@common.PYTHON
@click.option(
    "--progress",
    type=click.Choice(["auto", "plain", "none"]),
    default="auto",
    show_default=True,
    help="Show progress this way; auto: plain lines.",
)
def worker(study: str, storage: str, device: str, progress: Mode, **flags: Any) -> None:
    """Run trials of STUDY for an `autotune search` with the same --storage.

    The arguments of a training script follow a `--`, as they do for the search. Its --model may
    be an installed command, or with -m a module; its maps are the search's.
    """
    from autotune.commands.execute import execute_worker
    from autotune.process.devices import Device, devices_of, seen_alone
    from autotune.searching.trials.workers import WorkerOptions

    model, script = scripts.called_script(flags.pop("model"), flags)
    chosen = [Device(device)] if device == "auto" else devices_of(device)
    if len(chosen) > 1:
        raise UsageError(f"--device {device}: a worker has one device; start a worker for each.")
    (chosen_one,) = chosen if script is None else seen_alone(chosen)
    folder = common.study_folder(study)
    options = WorkerOptions(study, storage, model, folder, chosen_one, script, flags["python"])
    execute_worker(options, progress)
