"""Measure every configuration of a space into a table that searches can be replayed against.

    python -m benchmarks.record MODEL --out table.jsonl [--space NAME] [--repeats N] [--seed N]
        [-- ARGUMENTS of a script]

The same command continues a table. Pack it with xz when it is complete.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from autotune.commands import common, script_options
from autotune.configuration.script import ScriptOptions
from autotune.console.progress import signs_of_life
from autotune.context.options import SearchOptions
from autotune.process.common.trial_folder import TEMPORARY
from autotune.process.runner import SubprocessRunner
from autotune.process.stop import unwind_on_sigterm
from autotune.study.storage import storage_errors
from autotune.values.errors import AutotuneError, UsageError
from autotune.values.outcome import Measured
from autotune.values.text import span
from benchmarks.recording import Recorded, recording


@click.command(
    cls=script_options.ScriptCommand,
    params=[
        common.MODEL,
        common.SPACE,
        common.option("--out", "Such as table.jsonl.", common.PATH, required=True),
        common.option("--repeats", "Processes for each configuration.", click.IntRange(min=1), 1),
        common.DEVICE,
        common.option("--seed", "Seed of the order.", click.IntRange(0, 2**32 - 1), 0),
    ],
)
def record(model: Path, out: Path, repeats: int, **flags: Any) -> None:
    """Measure every configuration of a space into a table for replays; continue one.

    A MODEL with a `--` after it is a training script, with its arguments.
    """
    if out.suffix != ".jsonl":
        raise UsageError(f"--out {out} must end in .jsonl; pack it with xz when it is complete.")
    unwind_on_sigterm()
    arguments = script_options.arguments_given()
    script = None if arguments is None else ScriptOptions(arguments, workdir=TEMPORARY)
    show_recording(common.options_of(model, out=out, script=script, **flags), repeats)


def show_recording(options: SearchOptions, repeats: int) -> None:
    """Record a table to its end, and write a line for each answer.

    Raises:
        AutotuneError: see `benchmarks.recording.recording`.
    """
    with (
        storage_errors(None),
        TemporaryDirectory(prefix="autotune-", ignore_cleanup_errors=True) as name,
        SubprocessRunner(Path(name) / "inductor") as runner,
        signs_of_life("a configuration") as write,
    ):
        study = replace(options.study, folder=Path(name))
        answers = recording(replace(options, study=study), runner, repeats)
        for line in lines_of(answers, time.monotonic()):
            write(line)


def lines_of(answers: Iterable[Recorded], start: float) -> Iterable[str]:
    """Yield a line for each answer of a table, with the time that the rest will take."""
    before: int | None = None
    for recorded in answers:
        before = recorded.done - 1 if before is None else before
        each = (time.monotonic() - start) / (recorded.done - before)
        answer = recorded.answer
        run = answer.outcome
        rate = run.measurement.samples_per_second if isinstance(run, Measured) else None
        found = run.kind if rate is None else f"{rate:.1f}/s"
        yield (
            f"{recorded.done:5d} of {recorded.total}  {answer.task.kind:<8} {found:>14}  "
            f"{answer.seconds:5.1f} s  about {span(each * (recorded.total - recorded.done))} left"
        )


if __name__ == "__main__":
    try:
        record()
    except AutotuneError as error:
        sys.exit(str(error))
