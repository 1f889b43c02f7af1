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
from autotune.configuration.best_config import read_best
from autotune.console.interrupts import unwind_on_sigterm
from autotune.console.lines import (
    comparison_line,
    comparison_result,
    last_round_line,
    written_lines,
)
from autotune.console.progress import answer, kept_files, signs_of_life
from autotune.values.outcome import Observed

_NOT_FASTER = 8


@click.command(
    cls=scripts.ScriptCommand,
    params=[
        common.MODEL,
        click.Argument(["a"], type=common.PATH),
        click.Argument(["b"], type=common.PATH, required=False),
        common.option(
            "--rounds",
            f"Time both this many times; a 95 % interval needs at least {FEWEST_ROUNDS}.",
            click.IntRange(min=FEWEST_ROUNDS),
            9,
        ),
        common.DEVICE,
        common.option(
            "--nproc-per-node",
            "Train in this many processes on this host. Default: as A says.",
            click.IntRange(min=1),
        ),
        common.LAUNCHER,
        common.FRESH_DATA,
        *scripts.CALLED,
        common.JSON,
        common.flag(
            "--require-faster",
            "Exit with 8 if A no longer has its confirmed speed-up, or, if B is given or A was "
            "edited, if A is not faster.",
        ),
        common.STRICT,
    ],
)
def compare(model: Path, as_json: bool, require_faster: bool, strict: bool, **flags: Any) -> None:
    """Time the settings of A against those of B, or against MODEL's own, alternately.

    MODEL is a model.py or an unchanged training script (also an installed command, or with -m a
    module). Arguments of the script go after `--`.
    """
    common.check_processes(flags)
    files = [path for path in (flags["a"], flags["b"]) if path is not None]
    answers = [read_best(path) for path in files]
    known = [text for answer in answers for text in answer.maps]
    flags["nproc_per_node"] = flags["nproc_per_node"] or answers[0].processes or 1
    model, script = scripts.called_script(model, flags, known)
    for best in files:
        common.tell_mismatches(best, model, strict, flags["nproc_per_node"])
    a, b = (side_of(flags.pop(name)) for name in ("a", "b"))
    flags["processes"], flags["launch"] = flags.pop("nproc_per_node"), flags.pop("launcher")
    unwind_on_sigterm()
    is_met = execute_comparison(ComparisonOptions(model, a, b, **flags, script=script), as_json)
    sys.exit(_NOT_FASTER if require_faster and not is_met else 0)


def execute_comparison(options: ComparisonOptions, as_json: bool) -> bool:
    """Compare two configurations to the end; return True if A is as fast as claimed.

    Raises:
        AutotuneError: see `autotune.comparison.compare.compare`.
    """
    comparison = PairedComparison()
    with (
        execute.scratch_folder() as folder,
        kept_files() as keep,
        execute.one_runner(folder, keep) as runner,
        signs_of_life("a round") as write,
    ):

        def tell(seen: Observed, notes: Sequence[str]) -> None:
            if lines := written_lines(options, seen, options.processes):
                write("\n".join([*lines, *(f"  {note}" for note in notes)]))

        for now in states_of(options, runner, folder, tell):
            write(last_round_line(comparison, now))
            comparison = now
    data = comparison_result(options, comparison) if as_json else None
    answer([comparison_line(options, comparison)], data)
    return options.is_met(comparison)
