"""Command `worker`: run trials of a study on one more device or host."""

from __future__ import annotations

from typing import Any

import click

from autotune.commands import common
from autotune.commands import script_options as scripts
from autotune.commands.execute import one_runner
from autotune.console.progress import display, kept_files
from autotune.context.options import WorkloadOptions
from autotune.process.devices import Device, DeviceRunner, devices_of
from autotune.process.stop import Stop, interrupts
from autotune.searching.trials.workers import WorkerOptions, join
from autotune.values.errors import UsageError


@click.command(
    cls=scripts.ScriptCommand,
    params=[
        click.Argument(["study"]),
        common.option(
            "--storage",
            "Use the storage of the search, such as postgresql://user@host/database.",
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
    model, script = scripts.called_script(flags.pop("model"), flags)
    chosen = [Device(device)] if device == "auto" else devices_of(device)
    if len(chosen) > 1:
        raise UsageError(f"--device {device}: a worker has one device. Start one worker for each.")
    folder, (own,) = common.study_folder(study), scripts.as_seen(chosen, script)
    options = WorkerOptions(study, storage, WorkloadOptions(model, script), folder, own)
    execute_worker(options, quiet)


def execute_worker(options: WorkerOptions, quiet: bool) -> None:
    """Run trials of a study that another process searches, until none is left."""
    stop, device = Stop(), options.device
    with (
        interrupts(stop),
        display("none" if quiet else "plain") as show,
        kept_files(options.folder) as keep,
        one_runner(options.folder, keep, environ=device.environ, stop=stop) as runner,
    ):
        for event in join(options, DeviceRunner(runner, device, stop), stop):
            show(event)
