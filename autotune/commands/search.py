"""Command `search`: create or continue a study and write best.yaml."""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autotune.commands import common
from autotune.commands import script_options as scripts
from autotune.configuration.flag_types import (
    DURATION,
    SHARE,
    SIZE,
    EffectiveBatchType,
    NameType,
    ToleranceType,
)
from autotune.console.help_sections import SectionedCommand
from autotune.console.interrupts import unwind_on_sigterm
from autotune.values.errors import StudyMismatchError

if TYPE_CHECKING:
    from autotune.console.live import Mode

_NOTHING_FEASIBLE = 3


def _samplers() -> list[str]:
    from autotune.sampling.samplers import AUTO, sampler_names

    return [AUTO, *sampler_names()]


class SearchCommand(scripts.ScriptCommand, SectionedCommand):
    """The command, with sections in its help."""


@click.command(
    cls=SearchCommand,
    options_metavar="[OPTIONS]",
    short_help="Find the fastest settings; write best.yaml.",
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
    type=DURATION,
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
@common.DEVICE
@common.PYTHON
@click.option(
    "--devices",
    metavar="DEVICE,...",
    help="Run trials on these devices in parallel: cuda:0,cuda:1 or cpu:0-3,cpu:4-7.",
)
@click.option(
    "--objective",
    type=click.Choice(["throughput", "run_time"]),
    default="throughput",
    show_default=True,
    help="Maximise steady-state samples/s, or minimise the total time of a run (implied by "
    "--run-samples and --run-epochs).",
)
@click.option(
    "--run-samples",
    type=click.IntRange(min=1),
    help="Minimise the time of a run of this many samples, start and compilation included.",
)
@click.option(
    "--run-epochs",
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
    "--memory-headroom",
    type=SHARE,
    default="8%",
    show_default=True,
    help="Leave this share of the memory free.",
)
@click.option(
    "--memory-limit",
    type=SIZE,
    help="Use at most this much memory, such as 16GB. Default: all but the headroom.",
)
@click.option(
    "--accuracy-tolerance",
    type=ToleranceType(),
    default="1%",
    show_default=True,
    help="Allow this loss of quality: 1% of yours, or (model.py) of what your training gained if "
    "the quality is a loss; a difference (0.01); noise for 1% of yours or its spread over seeds.",
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
    type=click.Choice(["none", "linear", "sqrt"]),
    default="none",
    show_default=True,
    help="Scale the learning rate with the batch size: linear for SGD (at most 8x), sqrt for Adam.",
)
@click.option(
    "--effective-batch",
    type=EffectiveBatchType(),
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
    type=DURATION,
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
    type=NameType("sampler", _samplers),
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
@common.LAUNCH
@common.FRESH_DATA
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="Seed the search and the trainings.",
)
@scripts.AS_MODULE
@scripts.ONLY
@scripts.MAP
@scripts.PRESET
@scripts.METRIC_REGEX
@scripts.METRIC_MODE
@scripts.WORKDIR
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show space, plan and estimated time; of the training only the first steps run.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on stdout.")
@click.option(
    "--progress",
    type=click.Choice(["auto", "rich", "plain", "none"]),
    default="auto",
    show_default=True,
    help="Show progress this way; auto: a table on a terminal, plain lines elsewhere and in CI.",
)
def search(dry_run: bool, as_json: bool, progress: Mode, new_study: bool, **flags: Any) -> None:
    """Create or continue a study of MODEL, and write best.yaml.

    MODEL is a model.py, or an unchanged training script, whose arguments follow a `--`. A script
    may also be an installed command, or with -m a module.
    """
    from autotune.commands.execute import execute_search, show_plan
    from autotune.console.plan_lines import observing_line
    from autotune.console.progress import to_stderr
    from autotune.process.devices import devices_of, seen_alone

    script = scripts.script_options(flags["model"], flags, scripts.arguments_given())
    devices = devices_of(text) if (text := flags.pop("devices")) else ()
    common.check_processes(flags, has_devices=bool(devices))
    if script is not None:
        devices = seen_alone(devices)
    if devices:
        flags |= {"device": devices[0].torch_name, "at_once": len(devices)}
    options = common.options_of(**flags, script=script, new_study=new_study)
    if script is not None and progress != "none":
        to_stderr(observing_line(options.workload.model_path, script))
    if dry_run:
        unwind_on_sigterm()
        show_plan(options)
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
            options = common.renamed(options, next(named))
