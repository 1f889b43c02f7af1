"""Command `compare`: time two configurations alternately."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from autotune.commands import common, execute
from autotune.commands import script_options as scripts
from autotune.comparison.compare import FEWEST_ROUNDS, ComparisonOptions, side_of
from autotune.comparison.compare import compare as states_of
from autotune.comparison.rounds import PairedComparison
from autotune.configuration.best_config import BestConfig, read_best
from autotune.configuration.training_config import render
from autotune.console import lines
from autotune.console.progress import answer, kept_files, signs_of_life
from autotune.context.options import Resources, WorkloadOptions
from autotune.process.stop import unwind_on_sigterm
from autotune.study import history
from autotune.values.machine import Machine
from autotune.values.outcome import Observed

_NOT_FASTER = 8


FRONT = ("rounds", "against", "max_regression", "require_faster", "as_module", "as_json")
"""Names of the options that most people need, which `-h` shows."""
SECTIONS: scripts.Sections = {
    "The comparison": [
        common.option(
            "--rounds",
            f"Time both this many times; a 95 % interval needs at least {FEWEST_ROUNDS}.",
            click.IntRange(min=FEWEST_ROUNDS),
            9,
        ),
        common.option(
            "--against",
            "Compare the rate of A with the one that this best.yaml recorded. A may be left out.",
            common.PATH,
            metavar="BEST.yaml",
        ),
        common.option(
            "--max-regression",
            "Exit with 8 if A is slower by more than this share, such as 5%, and beyond the noise: "
            "than --against recorded, else than B, else than MODEL's own settings.",
            common.share,
        ),
        common.flag(
            "--require-faster",
            "Exit with 8 unless A keeps its confirmed speed-up, or, if B is given or A was edited, "
            "unless A is faster.",
        ),
        *(common.STRICT, common.JSON),
    ],
    "A training script": scripts.CALLED,
    "A model.py": [common.FRESH_DATA],
    "Devices and processes": [
        common.DEVICE,
        common.option(
            "--nproc-per-node",
            "Train in this many processes on this host. Default: as A says.",
            click.IntRange(min=1),
        ),
        common.LAUNCHER,
    ],
}
"""Options of the command by the sections of its help."""


@click.command(
    cls=scripts.ScriptCommand,
    params=[
        common.MODEL,
        click.Argument(["a"], type=common.PATH, required=False),
        click.Argument(["b"], type=common.PATH, required=False),
    ],
    sections=SECTIONS,
    front=FRONT,
)
def compare(model: Path, as_json: bool, strict: bool, **flags: Any) -> None:
    """Time the settings of A against those of B, or against MODEL's own, alternately.

    MODEL is a model.py or an unchanged training script (also an installed command, or with -m a
    module). Arguments of the script go after `--`. The rate of A is added to history.jsonl in the
    directory of its study, which `autotune report` draws.
    """
    common.check_processes(flags)
    against = flags["against"]
    flags["a"] = flags["a"] or against
    if flags["a"] is None:
        raise click.UsageError("Missing argument 'A': name a best.yaml, here or by --against.")
    files = [path for path in (flags["a"], flags["b"]) if path is not None]
    answers = [read_best(path) for path in files]
    known = [text for answer in answers for text in answer.maps]
    flags["nproc_per_node"] = flags["nproc_per_node"] or answers[0].processes or 1
    model, script = scripts.called_script(model, flags, known)
    for best in dict.fromkeys((*files, *([against] if against else []))):
        common.tell_mismatches(best, model, strict, flags["nproc_per_node"])
    a, b = (side_of(flags.pop(name)) for name in ("a", "b"))
    count, launch = flags.pop("nproc_per_node"), flags.pop("launcher")
    resources = Resources(flags.pop("device"), processes=count, launch=launch)
    workload = WorkloadOptions(model, script, fresh_data=flags.pop("fresh_data"))
    flags["against"] = against and read_best(against)
    unwind_on_sigterm()
    options = ComparisonOptions(workload, a, b, resources=resources, **flags)
    sys.exit(0 if execute_comparison(options, as_json) else _NOT_FASTER)


def execute_comparison(options: ComparisonOptions, as_json: bool) -> bool:
    """Compare two configurations to the end; return True if A is as fast as was asked for."""
    comparison, trained_on = PairedComparison(), list[tuple[Machine, int]]()
    with (
        execute.scratch_folder() as folder,
        kept_files() as keep,
        execute.one_runner(folder, keep) as runner,
        signs_of_life("a round") as write,
    ):

        def tell(machine: Machine, seen: Observed, notes: Sequence[str]) -> None:
            given = options.resources
            processes = seen.processes if given.launch else given.processes
            trained_on.append((machine, processes))
            if written := lines.written_lines(options.workload, seen, processes):
                write("\n".join([*written, *(f"  {note}" for note in notes)]))

        for now in states_of(options, runner, folder, tell):
            write(lines.last_round_line(comparison, now))
            comparison = now
    data = lines.comparison_result(options, comparison) if as_json else None
    answer([lines.comparison_line(options, comparison)], data)
    if (best := options.a.best) is not None:
        rated = options.workload.model_path, render(best.changed), comparison.candidate
        _remember(best, history.ConfirmedRate.of("compare", *rated, *trained_on[-1]))
    return options.passes(comparison)


def _remember(best: BestConfig, rate: history.ConfirmedRate) -> None:
    """Add A's rate to the history of its study; say so if that is not possible."""
    try:
        history.append(common.study_folder(best.provenance.study), rate)
    except OSError as error:
        common.say(f"the rate was not added to {error.filename}: {error.strerror}")
