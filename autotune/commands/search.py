"""Creates or continues a study and writes best.yaml."""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autotune.commands import common, scripts
from autotune.errors import StudyMismatchError, UsageError
from autotune.flags import Duration, Share, Size, ToleranceType

if TYPE_CHECKING:
    from autotune.live import Mode

_NOTHING_FEASIBLE = 3


@click.command(cls=scripts.ScriptCommand, options_metavar="[OPTIONS]")
@common.MODEL
@common.SPACE
@click.option(
    "--trials", type=click.IntRange(min=1), help="In total, over all runs; default: the space's."
)
@click.option(
    "--time-budget",
    type=Duration(),
    help="Such as 90s, 10m or 1h: no trial starts that would leave no time to confirm.",
)
@click.option("--study", help="Name of the study; default: from the model's path.")
@click.option(
    "--storage",
    help="postgresql://user@host/database or sqlite:///FILE; default: one in the study's folder.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Default: best.yaml in the study's folder."
)
@common.DEVICE
@click.option(
    "--devices",
    metavar="DEVICE,...",
    help="Run trials on each at the same time: cuda:0,cuda:1 or cpu:0-3,cpu:4-7.",
)
@click.option(
    "--objective",
    type=click.Choice(["throughput", "run_time"]),
    default="throughput",
    help="Of the steady state, or the time of a run: --run-samples and --run-epochs imply that.",
)
@click.option(
    "--run-samples",
    type=click.IntRange(min=1),
    help="Find what trains so many samples soonest, start and compilation included.",
)
@click.option("--run-epochs", type=click.IntRange(min=1), help="The same in epochs.")
@click.option(
    "--memory-headroom", type=Share(), default="8%", help="Share of memory to leave free."
)
@click.option("--memory-limit", type=Size(), help="Such as 2GiB; default: all but the headroom.")
@click.option(
    "--accuracy-tolerance",
    type=ToleranceType(),
    default="1%",
    help="Share of the baseline (1%), or absolute (0.01).",
)
@click.option("--min-accuracy", type=float, help="A floor for evaluate().")
@click.option(
    "--accuracy-samples",
    type=click.IntRange(min=1),
    help="Samples that each accuracy probe trains on; default: 3 to 6 s of your settings.",
)
@click.option(
    "--lr-scaling",
    type=click.Choice(["none", "linear", "sqrt"]),
    default="none",
    help="Learning rate with the batch size: linear for SGD (at most 8x), sqrt for Adam.",
)
@common.BASELINE
@click.option(
    "--trial-timeout", type=Duration(), default="10m", help="The longest that one process may take."
)
@click.option(
    "--warm-start",
    metavar="STUDY|BEST.yaml",
    help="Try first what was best in an earlier search, of another machine or model: STUDY as "
    "`autotune report` takes it, or the name of one in --storage.",
)
@click.option(
    "--sampler",
    type=click.Choice(["auto", "tpe", "gp", "random", "qmc", "nsga2", "grid"]),
    default="auto",
    help="Who proposes; auto is described in docs/search.md, the others are Optuna's.",
)
@click.option(
    "--max-failures",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="Trials in a row that fail after which the search ends.",
)
@click.option(
    "--new-study",
    is_flag=True,
    help="Where the study was made for something else, take NAME-2, NAME-3 and so on.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Where it was, begin anew in the same storage; results are never compared.",
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0)
@scripts.ALLOW
@scripts.MAP
@scripts.METRIC_REGEX
@scripts.METRIC_MODE
@click.option(
    "--dry-run", is_flag=True, help="Show space, plan and estimated time; measure nothing."
)
@click.option("--json", "as_json", is_flag=True, help="The answer as JSON on stdout.")
@click.option(
    "--progress",
    type=click.Choice(["auto", "rich", "plain", "none"]),
    default="auto",
    help="auto: a table on a terminal, plain lines elsewhere and in CI.",
)
def search(dry_run: bool, as_json: bool, progress: Mode, new_study: bool, **flags: Any) -> None:
    """Create or continue a study of MODEL, and write best.yaml.

    MODEL is a model.py, or a training script that nobody changed: its arguments follow a `--`.
    """
    from autotune.drive import drive_search, show_plan
    from autotune.tuning.running.devices import devices_of

    if new_study and flags["force"]:
        raise UsageError("--new-study and --force contradict each other. Give one of them.")
    script = scripts.script_options(flags["model"], flags, scripts.arguments_given())
    devices = devices_of(text) if (text := flags.pop("devices")) else ()
    if devices and script is not None:
        raise UsageError("--devices: a script chooses its device itself, by its own arguments.")
    if devices:
        flags |= {"device": devices[0].torch_name, "at_once": len(devices)}
    options = common.options_of(**flags, script=script)
    if dry_run:
        common.unwind_on_sigterm()
        show_plan(options)
        return
    name = options.study
    named = (f"{name}-{number}" for number in count(2))
    while True:
        try:
            found = drive_search(options, progress, as_json, devices)
            sys.exit(0 if found else _NOTHING_FEASIBLE)
        except StudyMismatchError:
            if not new_study:
                raise
            options = common.renamed(options, next(named))
