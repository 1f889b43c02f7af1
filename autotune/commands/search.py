"""Command `search`: create or continue a study, and write best.yaml."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

import click

from autotune.commands import common, execute
from autotune.commands import script_options as scripts
from autotune.commands.common import flag, option
from autotune.configuration.best_config import read_best
from autotune.configuration.search_space import find_space, read_space
from autotune.configuration.training_config import LR_RULES
from autotune.console.lines import answer_lines, estimate, observing_line, plan_lines, result
from autotune.console.progress import Mode, answer, display, kept_files, signs_of_life, to_stderr
from autotune.context.options import SearchOptions, time_budget_of
from autotune.context.search_context import survey
from autotune.process.devices import Device, devices_of
from autotune.process.stop import BudgetedRunner, Clock, Stop, interrupts, unwind_on_sigterm
from autotune.sampling.samplers import AUTO, SAMPLERS
from autotune.searching.run.events import Answered, NothingFeasible
from autotune.searching.search import path_so_far
from autotune.searching.search import search as search_events
from autotune.study.storage import check_storage, file_of, study_lock
from autotune.values.errors import StudyMismatchError

_NOTHING_FEASIBLE = 3


FRONT = (
    *("time_budget", "dry_run", "space", "without", "as_module", "maps", "metric_regex"),
    *("metric_mode", "exact_only", "workdir", "temp_workdir", "device", "out"),
)
"""Names of the options that most people need, which `-h` shows."""
POSITIVE = click.IntRange(min=1)
SECTIONS: scripts.Sections = {
    "Search": [
        common.SPACE,
        option(
            "--without",
            "Leave a setting out of the search, such as compile_mode. Repeatable.",
            multiple=True,
            metavar="SETTING",
        ),
        option(
            "--time-budget",
            "Take about this long in total, such as 90s, 10m or 1h, and at most a tenth longer. "
            "Default: the space's, unless --trials is given.",
            common.duration,
        ),
        option("--trials", "Run this many trials in total. Default: the space's number.", POSITIVE),
        option(
            "--objective",
            "Maximise samples/s, or minimise the time until the training loss reaches VALUE. "
            "Default for VALUE: what your settings reach in a short training.",
            common.objective,
            "throughput",
            metavar="throughput|time-to-loss[=VALUE]",
        ),
        option(
            "--target-samples",
            "Minimise the time of a run of this many samples. Default: maximise samples/s.",
            POSITIVE,
        ),
        option("--target-epochs", "Minimise the time of a run of this many epochs.", POSITIVE),
        flag(
            "--deterministic",
            "Run everything in torch's deterministic mode, and try only settings that keep it.",
        ),
        flag(
            "--dry-run",
            "Show what a search would try and about how long it takes, then stop. This starts a "
            "script once or twice for its first steps.",
        ),
    ],
    "A training script": [*scripts.CALLED, *scripts.JUDGED],
    "A model.py": [
        common.BASELINE,
        option("--min-accuracy", "Require at least this value of evaluate().", float),
        common.FRESH_DATA,
    ],
    "Quality and memory": [
        option(
            "--accuracy-tolerance",
            "Allow this much worse quality: a share of yours (if the metric of a model.py is a "
            "loss, a share of what your training gained), or a difference, such as 0.01.",
            common.tolerance,
            "1%",
        ),
        option(
            "--accuracy-samples",
            "Train on this many samples to compare quality. Default: as many as your training "
            "takes in 3 to 6 s, more for a script whose loss drops late.",
            POSITIVE,
        ),
        option(
            "--effective-batch",
            "Keep the samples of an optimizer step (keep), fix them to N over all processes, or "
            "vary them (free). Default: keep if your settings accumulate gradients, else free.",
            common.effective_batch,
            metavar="free|keep|N",
        ),
        option(
            "--lr-scaling",
            "Scale the learning rate with the batch size: linear for SGD (at most 8x), sqrt for "
            "Adam. For a script, autotune sets the learning rate's flag: it finds it, or --map "
            "lr=--lr names it.",
            click.Choice(LR_RULES),
            "none",
        ),
        option(
            "--memory-limit",
            "Use at most this much memory, such as 16GB, or this share of the device's.",
            common.memory,
            "92%",
        ),
    ],
    "Devices and processes": [
        option(
            "--device",
            "Use this device: auto, cpu, cuda or cuda:N. Several, such as cuda:0,cuda:1 or "
            "cpu:0-3,cpu:4-7, run trials at the same time.",
            default="auto",
            metavar="DEVICE[,...]",
        ),
        *(common.PROCESSES, common.LAUNCHER),
        option("--trial-timeout", "Kill a process that takes longer.", common.duration, "10m"),
        option("--max-failures", "Stop after this many failed trials in a row.", POSITIVE, 8),
    ],
    "The study and its result": [
        option(
            "--study", "Give the study this name. Default: from the model's path.", metavar="NAME"
        ),
        option(
            "--storage",
            "Keep the study here: sqlite:///FILE, or for `autotune worker` on a server, "
            "postgresql:// or mysql://user@host/database. Default: study.db in the study's "
            "directory.",
            metavar="URL",
        ),
        option(
            "--out",
            "Write the result to this file. Default: best.yaml in the study's directory.",
            common.PATH,
        ),
        flag("--new-study", "If the study was made for something else, use NAME-2, NAME-3 ..."),
        option(
            "--warm-start",
            "Try the result of an earlier search first, even of another machine or model.",
            common.PATH,
            metavar="BEST.yaml",
        ),
        option(
            "--sampler",
            "Propose trials with this class of optuna.samplers.",
            click.Choice([AUTO, *SAMPLERS]),
            AUTO,
            metavar="NAME",
        ),
        option("--seed", "Seed the search and the trainings.", click.IntRange(0, 2**32 - 1), 0),
        common.JSON,
        option(
            "--progress",
            "Show progress this way; auto: a table on a terminal, plain lines elsewhere and in CI.",
            click.Choice(["auto", "rich", "plain", "none"]),
            "auto",
        ),
        common.QUIET,
    ],
}
"""Options of the command by the sections of its help."""


@click.command(cls=scripts.ScriptCommand, params=[common.MODEL], sections=SECTIONS, front=FRONT)
def search(
    dry_run: bool, as_json: bool, progress: Mode, quiet: bool, new_study: bool, **flags: Any
) -> None:
    """Find the fastest settings for MODEL, and write them to best.yaml.

    MODEL is a model.py or an unchanged training script (also an installed command, or with -m a
    module). Arguments of the script go after `--`. The same command continues a study.
    """
    progress = "none" if quiet else progress
    options, devices = search_options(flags, scripts.arguments_given())
    script = options.workload.script
    read_space(find_space(options.sampling.space))  # before anything takes time
    if script is not None and progress != "none":
        to_stderr(observing_line(options.workload.model_path, script))
    if dry_run:
        unwind_on_sigterm()
        show_plan(options, devices)
        return
    first = options.study.name
    for number in count(2):
        try:
            found = execute_search(options, progress, as_json, devices)
            sys.exit(0 if found else _NOTHING_FEASIBLE)
        except StudyMismatchError:
            if not new_study:
                raise
            another = {**flags, "study": f"{first}-{number}"}
            options, devices = search_options(another, scripts.arguments_given())


def search_options(
    flags: Mapping[str, Any], arguments: Sequence[str] | None
) -> tuple[SearchOptions, tuple[Device, ...]]:
    """Return the options that the command's flags give, and the devices that run trials at once.

    The flags have the names that they have there, and one is "model".

    Raises:
        UsageError: a flag cannot be used.
    """
    given = dict(flags)
    device, source = given["device"], given.pop("warm_start")
    is_shared_out = "," in device or device.startswith("cpu:")
    given["device"] = "auto" if ":" in device else device
    model, script = scripts.script_options(given.pop("model"), given, arguments)
    devices: tuple[Device, ...] = ()
    if is_shared_out or (script is not None and ":" in device):
        devices = scripts.as_seen(devices_of(device), script)
        given |= {"device": devices[0].torch_name, "at_once": len(devices)}
    else:
        given["device"] = device
    common.check_processes(given, device if devices else "")
    warm_start = () if source is None else (read_best(source).training_config,)
    options = common.options_of(model, **given, script=script, warm_start=warm_start)
    return options, devices


def execute_search(
    options: SearchOptions, progress: Mode, as_json: bool, devices: Sequence[Device] = ()
) -> bool:
    """Run a search to its end for a shell; return True if it found anything feasible."""
    stop = Stop()
    try:
        with interrupts(stop):
            last = run_search(options, progress, devices, stop)
    except (KeyboardInterrupt, SystemExit):
        with suppress(OSError):  # the search may end because the terminal is gone
            to_stderr("\nStopped. Finished trials are kept. To continue:")
            to_stderr(f"  {shlex.join(['autotune', *sys.argv[1:]])}")  # which masks passwords
            if (so_far := path_so_far(options)).exists():
                to_stderr(f"The fastest trial so far (not confirmed): {so_far}")
        raise
    data = result(last) if as_json else None
    answer(answer_lines(last), data, quiet=progress == "none")
    return isinstance(last, Answered)


def run_search(
    options: SearchOptions,
    progress: Mode,
    devices: Sequence[Device] = (),
    stop: Stop | None = None,
) -> Answered | NothingFeasible:
    """Run a search to its end, with its directory locked, and report events on stderr.

    Trials run on all `devices` at the same time, if any are named. Finished trials are kept however
    the search ends.
    """
    last: Answered | NothingFeasible | None = None
    stop = stop or Stop()
    check_storage(options.study.storage)
    place, database = options.study.folder, file_of(options.study.storage)
    if database is not None and database.parent.is_dir():
        place = database.resolve().parent  # an SQLite file allows one writer
    with (
        study_lock(place),
        display(progress) as show,
        kept_files(options.study.folder) as keep,
        execute.search_runners(options, devices, stop, keep) as (runner, extra_devices),
    ):
        for event in search_events(options, runner, stop, extra_devices):
            show(event)
            if isinstance(event, Answered | NothingFeasible):
                last = event
    assert last is not None
    return last


def show_plan(options: SearchOptions, devices: Sequence[Device] = ()) -> None:
    """Print the plan of a search and an estimate of its time, without measuring anything."""
    clock = Clock(time_budget_of(options))
    with execute.scratch_folder() as folder, kept_files() as keep, signs_of_life(""):
        environ = next(iter(execute.environs(devices)), {})
        runner = execute.one_runner(folder, keep, warm=False, environ=environ)
        context = survey(options, BudgetedRunner(runner, clock), folder)
    for line in plan_lines(context):
        to_stderr(line)
    if options.workload.script is None:
        to_stderr(estimate(context))
    to_stderr("the search itself will also leave out settings that cannot matter")
