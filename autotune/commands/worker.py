"""Command `worker`: run trials of a study on one more device or host."""

from __future__ import annotations

from typing import Any

import click

from autotune.commands import common
from autotune.commands import script_options as scripts
from autotune.values.errors import UsageError


@click.command(
    cls=scripts.ScriptCommand,
    params=[
        click.Argument(["study"]),
        common.option(
            "--storage",
            "Use the storage of the search, postgresql://user@host/database.",
            required=True,
            metavar="URL",
        ),
        common.option("--model", "Train the same file as the search.", common.PATH, required=True),
        scripts.AS_MODULE,
        common.option(
            "--device",
            "Use this device: auto, cpu, cuda:N, or cores such as cpu:0-3.",
            default="auto",
            metavar="DEVICE",
        ),
        common.QUIET,
    ],
)
def worker(study: str, storage: str, device: str, quiet: bool, **flags: Any) -> None:
    """Run trials of STUDY for an `autotune search` with the same --storage.

    Arguments of a training script go after `--`, as for the search. --model may also be an
    installed command, or with -m a module. The search's --map applies.
    """
    from autotune.commands.execute import execute_worker
    from autotune.process.devices import Device, devices_of, seen_alone
    from autotune.searching.trials.workers import WorkerOptions

    model, script = scripts.called_script(flags.pop("model"), flags)
    chosen = [Device(device)] if device == "auto" else devices_of(device)
    if len(chosen) > 1:
        raise UsageError(f"--device {device}: a worker has one device. Start one worker for each.")
    device_of_trials = chosen[0] if script is None else seen_alone(chosen[0])
    folder = common.study_folder(study)
    options = WorkerOptions(study, storage, model, folder, device_of_trials, script)
    execute_worker(options, quiet)
