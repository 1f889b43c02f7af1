"""Command `search`: create or continue a study and write best.yaml."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import click

from autotune.commands import common, execute
from autotune.commands import script_options as scripts
from autotune.configuration import flag_types
from autotune.configuration.best_config import read_best
from autotune.configuration.training_config import LR_RULES, TrainingConfig
from autotune.console.answer_lines import answer_lines, not_enough_result, result
from autotune.console.interrupts import interrupts, unwind_on_sigterm
from autotune.console.live import Mode, display
from autotune.console.plan_lines import estimate, observing_line, plan_lines
from autotune.console.progress import answer, kept_files, signs_of_life, stopped_lines, to_stderr
from autotune.context.budget_clock import BudgetedRunner, Clock
from autotune.context.options import SearchOptions, time_budget_of
from autotune.context.search_context import survey
from autotune.process.devices import Device, devices_of, seen_alone
from autotune.process.stop import Stop
from autotune.sampling.samplers import AUTO, sampler_names
from autotune.searching.confirmation.conclusion import path_so_far
from autotune.searching.run.events import Answered, NothingFeasible
from autotune.searching.search import search as search_events
from autotune.study import archive
from autotune.study.storage import check_storage, file_of, masked, study_lock
from autotune.values.errors import NotSearchedEnoughError, StudyMismatchError, UsageError

_NOTHING_FEASIBLE = 3
SECTIONS = {
    "What is searched, and for how long": (
        *("space", "time_budget", "trials", "target_samples", "target_epochs", "unit"),
        *("deterministic", "dry_run"),
    ),
    "A training script": (
        *("as_module", "maps", "no_map", "preset", "metric_regex", "metric_mode"),
        *("exact_only", "workdir", "temp_workdir"),
    ),
    "A model.py": ("baseline", "min_accuracy", "lr_scaling", "fresh_data"),
    "Accuracy and memory": (
        *("accuracy_tolerance", "accuracy_samples", "effective_batch", "memory_limit"),
    ),
    "Devices and processes": (
        *("device", "python", "nproc_per_node", "launcher", "trial_timeout", "max_failures"),
    ),
    "The study and its result": (
        *("study", "storage", "out", "new_study", "warm_start", "sampler", "seed"),
        *("as_json", "progress", "quiet"),
    ),
}
"""Title to the names of options, in the order of the whole help."""
FRONT = (
    *("time_budget", "dry_run", "space", "as_module", "maps", "metric_regex", "metric_mode"),
    *("exact_only", "workdir", "temp_workdir", "device", "python", "out"),
)
"""Names of the options that most people need, which `-h` shows."""


class SearchCommand(scripts.ScriptCommand):
    """The command, whose help has a front page and sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section."""
        placed = {name for names in SECTIONS.values() for name in names}
        others = [str(one.name) for one in self.get_params(ctx) if isinstance(one, click.Option)]
        helps = [name for name in others if name not in placed]
        for title, names in {**SECTIONS, "Help": helps}.items():
            self._write_section(ctx, formatter, title, names)

    def front_page(self, ctx: click.Context) -> str:
        """Return the help with the options that most people need."""
        formatter = ctx.make_formatter()
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        self._write_section(ctx, formatter, "Options", FRONT)
        return f"{formatter.getvalue()}\nAll options: {ctx.command_path} --help"

    def _write_section(
        self,
        ctx: click.Context,
        formatter: click.HelpFormatter,
        title: str,
        names: Iterable[str],
    ) -> None:
        options = {
            str(one.name): one for one in self.get_params(ctx) if isinstance(one, click.Option)
        }
        records = [options[name].get_help_record(ctx) for name in names]
        with formatter.section(title):
            formatter.write_dl([record for record in records if record is not None])


def _show_front(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked and isinstance(ctx.command, SearchCommand):
        click.echo(ctx.command.front_page(ctx))
        ctx.exit()


@click.command(
    cls=SearchCommand,
    options_metavar="[OPTIONS]",
    context_settings={"help_option_names": ["--help"]},
)
@common.MODEL
@common.SPACE
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    help="Run this many trials in total, over all runs. Default: the space's number.",
)
@click.option(
    "--time-budget",
    type=flag_types.DURATION,
    help="Take about this long, confirmation included, such as 90s, 10m or 1h; what has begun may "
    "end up to a tenth later. Default: the space's, unless --trials is given.",
)
@click.option("--study", help="Give the study this name. Default: from the model's path.")
@click.option(
    "--storage",
    help="Keep the study here: sqlite:///FILE, or for `autotune worker` on a server, "
    "postgresql://user@host/database. Default: study.db in the study's folder.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Write the result to this file. Default: best.yaml in the study's folder.",
)
@click.option(
    "--device",
    metavar="DEVICE[,...]",
    default="auto",
    show_default=True,
    help="Use this device: auto, cpu, cuda or cuda:N. Of several, such as cuda:0,cuda:1 or "
    "cpu:0-3,cpu:4-7, each runs trials at the same time.",
)
@common.PYTHON
@click.option(
    "--target-samples",
    type=click.IntRange(min=1),
    help="Minimise the time of a run of this many samples, start and compilation included. "
    "Default: maximise samples/s.",
)
@click.option(
    "--target-epochs",
    type=click.IntRange(min=1),
    help="Minimise the time of a run of this many epochs.",
)
@click.option(
    "--unit",
    type=click.Choice(["samples", "tokens"]),
    help="Tell throughput in samples alone, or in tokens too. Default: tokens too if model.py "
    "defines count_tokens.",
)
@click.option(
    "--memory-limit",
    type=flag_types.MEMORY,
    default="92%",
    show_default=True,
    help="Use at most this much memory, such as 16GB, or this share of it.",
)
@click.option(
    "--accuracy-tolerance",
    type=flag_types.ToleranceType(),
    default="1%",
    show_default=True,
    help="Allow this loss of quality: 1% of yours, or (model.py) of what your training gained if "
    "the quality is a loss; or a difference (0.01).",
)
@click.option(
    "--min-accuracy",
    type=float,
    help="Require at least this value of evaluate(). Default: no floor.",
)
@click.option(
    "--accuracy-samples",
    type=click.IntRange(min=1),
    help="Train each accuracy probe on this many samples. Default: 3 to 6 s of your settings, "
    "more of a script whose loss falls late.",
)
@click.option(
    "--lr-scaling",
    type=click.Choice(LR_RULES),
    default="none",
    show_default=True,
    help="Scale the learning rate with the batch size: linear for SGD (at most 8x), sqrt for Adam.",
)
@click.option(
    "--effective-batch",
    type=flag_types.EffectiveBatchType(),
    metavar="free|keep|N",
    help="Hold batch_size x accumulation_steps at yours (keep), or times the processes at N, which "
    "a batch size of the space must divide; free lets the batch size vary alone. Default: keep if "
    "your settings accumulate gradients, else free.",
)
@common.BASELINE
@click.option(
    "--deterministic",
    is_flag=True,
    help="Run everything, your settings included, in torch's deterministic mode, and try only "
    "settings that keep it.",
)
@click.option(
    "--trial-timeout",
    type=flag_types.DURATION,
    default="10m",
    show_default=True,
    help="End a process that takes longer than this, such as 90s or 10m.",
)
@click.option(
    "--warm-start",
    metavar="STUDY|BEST.yaml",
    help="Try first the best configurations of an earlier search, even of another machine or "
    "model. Give STUDY as for `autotune report`, or the name of a study in --storage.",
)
@click.option(
    "--sampler",
    type=flag_types.NameType("sampler", lambda: [AUTO, *sampler_names()]),
    default="auto",
    show_default=True,
    help="Propose trials with this sampler: auto, see docs/searching.md, or a class of "
    "optuna.samplers, such as TPESampler.",
)
@click.option(
    "--max-failures",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="End the search after this many failed trials in a row.",
)
@click.option(
    "--new-study",
    is_flag=True,
    help="Use NAME-2, NAME-3 and so on if the study was made for something else.",
)
@common.PROCESSES
@common.LAUNCHER
@common.FRESH_DATA
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="Seed the search and the trainings.",
)
@scripts.EXACT_ONLY
@scripts.METRIC_REGEX
@scripts.METRIC_MODE
@scripts.for_scripts
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show space, plan and estimated time, and stop. A script is started once "
    "or twice, for its first steps.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on stdout.")
@click.option(
    "--progress",
    type=click.Choice(["auto", "rich", "plain", "none"]),
    default="auto",
    show_default=True,
    help="Show progress this way; auto: a table on a terminal, plain lines elsewhere and in CI.",
)
@click.option("-q", "--quiet", is_flag=True, help="Show no progress, as --progress none.")
@click.option(
    "-h",
    "front",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_front,
    help="Show the options that most people need.",
)
def search(
    dry_run: bool, as_json: bool, progress: Mode, quiet: bool, new_study: bool, **flags: Any
) -> None:
    """Create or continue a study of MODEL, and write best.yaml.

    MODEL is a model.py, or an unchanged training script, whose arguments follow a `--`. A script
    may also be an installed command, or with -m a module.
    """
    progress = "none" if quiet else progress
    options, devices = search_options(flags, scripts.arguments_given())
    script = options.workload.script
    if script is not None and progress != "none":
        to_stderr(observing_line(options.workload.model_path, script))
    if dry_run:
        unwind_on_sigterm()
        show_plan(options, devices)
        return
    name = options.study.name
    named = (f"{name}-{number}" for number in count(2))
    while True:
        try:
            found = execute_search(options, progress, as_json, devices)
            sys.exit(0 if found else _NOTHING_FEASIBLE)
        except StudyMismatchError:
            if not new_study:
                raise
            options = renamed(options, next(named))


def search_options(
    flags: Mapping[str, Any], arguments: Sequence[str] | None
) -> tuple[SearchOptions, tuple[Device, ...]]:
    """Return the options that the command's flags give, and the devices that run trials at once.

    Args:
        flags: flags of the command by their names there, with "model".
        arguments: the script's arguments. None: the file's content decides if it is a script.

    Raises:
        UsageError: a flag cannot be used; see `warm_start_from` too.
    """
    given = dict(flags)
    device, source = given["device"], given.pop("warm_start")
    is_shared_out = "," in device or device.startswith("cpu:")
    given["device"] = "auto" if ":" in device else device
    model, script = scripts.script_options(given.pop("model"), given, arguments)
    devices: tuple[Device, ...] = ()
    if is_shared_out or (script is not None and ":" in device):
        devices = devices_of(device) if script is None else seen_alone(devices_of(device))
        given |= {"device": devices[0].torch_name, "at_once": len(devices)}
    else:
        given["device"] = device
    common.check_processes(given, has_devices=bool(devices))
    warm_start = warm_start_from(source, given["storage"]) if source else ()
    options = common.options_of(model, **given, script=script, warm_start=warm_start)
    return options, devices


def execute_search(
    options: SearchOptions, progress: Mode, as_json: bool, devices: Sequence[Device] = ()
) -> bool:
    """Run a search to its end for a shell; return True if it found anything feasible.

    Raises:
        AutotuneError: see `autotune.searching.search.search`.
        KeyboardInterrupt, SystemExit: the search was stopped; finished trials are in the study.
    """
    stop = Stop()
    try:
        with interrupts(stop):
            last = run_search(options, progress, devices, stop)
    except NotSearchedEnoughError as error:
        if as_json:
            sys.stdout.write(not_enough_result(error) + "\n")
        raise
    except (KeyboardInterrupt, SystemExit):
        with suppress(OSError):  # that the terminal is gone may be why this ends
            so_far = path_so_far(options)
            command = shlex.join(["autotune", *sys.argv[1:]])  # to_stderr masks passwords
            for line in stopped_lines(command, so_far if so_far.exists() else None):
                to_stderr(line)
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
    """Run a search to its end, with its folder locked, and report events on stderr.

    Trials run on all `devices` at the same time, if any are named. Finished trials are kept however
    the search ends.

    Raises:
        AutotuneError: see `autotune.searching.search.search`.
        KeyboardInterrupt: a stop was requested.
    """
    last: Answered | NothingFeasible | None = None
    stop = stop or Stop()
    with (
        study_lock(_folder_to_lock(options)),
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


def _folder_to_lock(options: SearchOptions) -> Path:
    """Return the folder of the study, or of its SQLite file, which allows one writer."""
    check_storage(options.study.storage)
    database = file_of(options.study.storage)
    if database is None or not database.parent.is_dir():
        return options.study.folder
    return database.resolve().parent


def show_plan(options: SearchOptions, devices: Sequence[Device] = ()) -> None:
    """Print the plan of a search and an estimate of its time, without measuring anything.

    Raises:
        AutotuneError: see `survey`, or inspecting the workload took longer than the time budget.
    """
    clock = Clock(time_budget_of(options))
    with execute.scratch_folder() as folder, kept_files() as keep, signs_of_life(""):
        python = options.workload.interpreter
        environ = next(iter(execute.environs(devices)), {})
        runner = execute.one_runner(folder, python, keep, warm=False, environ=environ)
        context = survey(options, BudgetedRunner(runner, clock), folder)
    for line in plan_lines(context):
        to_stderr(line)
    if context.observed is None:
        to_stderr(estimate(context))
    to_stderr("before its trials, a search leaves out what its diagnosis says cannot matter")


def warm_start_from(source: str, storage: str | None = None) -> tuple[TrainingConfig, ...]:
    """Return the best configurations of an earlier search, the best first.

    Args:
        source: a STUDY as for other commands, or the name of a study in `storage`.
        storage: URL of the search's own storage, if the user gave one.

    Raises:
        UsageError, StorageError: there is no such study, or it cannot be read.
    """
    try:
        found = archive.find_study(source)
    except UsageError as error:
        if storage is not None and _holds(storage, source):
            return archive.warm_start_from(storage, source)
        raise UsageError(f"--warm-start: {error}") from error
    if found.url is None:
        assert found.answer is not None
        return (read_best(found.answer).training_config,)
    try:
        return archive.warm_start_from(found.url, _study_meant(found.url, source))
    except UsageError as error:
        raise UsageError(f"--warm-start: {error}") from error


def _holds(storage: str, study: str) -> bool:
    check_storage(storage)
    database = file_of(storage)
    return (database is None or database.is_file()) and study in archive.study_names(storage)


def _study_meant(storage: str, source: str) -> str | None:
    """Return the study of that name, or of its folder's name; None if the storage has one study.

    Raises:
        UsageError: the storage holds several studies, none of them of that name.
    """
    names, database = archive.study_names(storage), file_of(storage)
    if len(names) < 2:  # noqa: PLR2004
        return None
    folder = "" if database is None else database.resolve().parent.name
    for name in (source, *(name for name in names if flag_types.folder_name(name) == folder)):
        if name in names:
            return name
    raise UsageError(
        f"{masked(storage)} holds several studies: {', '.join(map(repr, names))}. Choose one by "
        "its name, --warm-start NAME, in a search with that --storage."
    )


def renamed(options: SearchOptions, study: str) -> SearchOptions:
    """Return the options under another study name; paths that a flag set stay unchanged."""
    old, folder = options.study, common.study_folder(study)
    storage = (
        common.storage_in(folder) if old.storage == common.storage_in(old.folder) else old.storage
    )
    out = folder / common.BEST if old.out == old.folder / common.BEST else old.out
    changed = replace(old, name=study, storage=storage, folder=folder, out=out)
    return replace(options, study=changed)
