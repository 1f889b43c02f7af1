"""Command `profile`: show the bottleneck of a training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from autotune.commands import common, execute
from autotune.commands import script_options as scripts
from autotune.configuration.job import Measure, MeasurePlan, Profile
from autotune.console.interrupts import unwind_on_sigterm
from autotune.console.lines import written_lines
from autotune.console.progress import kept_files, signs_of_life
from autotune.console.tables import show_profile
from autotune.context.options import SearchOptions
from autotune.context.search_context import SearchContext, survey
from autotune.process.runner import Runner
from autotune.searching.run.diagnosis import diagnosis_of, narrowed, time_stages
from autotune.values.errors import WorkloadError
from autotune.values.outcome import Diagnosed, Measured, Profiled, as_failure, describe


@click.command(
    cls=scripts.ScriptCommand,
    params=[
        *(common.MODEL, common.SPACE, common.DEVICE),
        *(common.BASELINE, common.PROCESSES, *scripts.CALLED),
    ],
)
def profile(model: Path, **flags: Any) -> None:
    """Show the bottleneck of MODEL's training, settings that cannot matter, and costly operators.

    MODEL is a model.py or an unchanged training script (also an installed command, or with -m a
    module). Arguments of the script go after `--`.
    """
    model, script = scripts.called_script(model, flags, profiles=True)
    unwind_on_sigterm()
    execute_profile(common.options_of(model, **flags, script=script))


def execute_profile(options: SearchOptions) -> None:
    """Show the bottleneck of training and the costly operators.

    Raises:
        WorkloadError: the workload fails with the user's settings.
    """
    with (
        execute.scratch_folder() as folder,
        kept_files() as keep,
        execute.one_runner(folder, keep) as runner,
    ):
        with signs_of_life("the profile") as write:
            options = replace(options, study=replace(options.study, folder=folder))
            context = survey(options, runner)
            seen = context.traits.seen
            for line in written_lines(options.workload, seen, context.processes):
                write(line)
            stages = time_stages(context, runner)
            profiled = seen.profiled or runner.run(
                context.job(Profile(), context.baseline), folder / "trials" / "profile"
            )
            rate = _rate(context, runner, folder / "trials" / "whole")
        # Operators that were seen beside the steps are useful even without their phases.
        is_told = isinstance(stages, Diagnosed) or seen.profiled is not None
        if not (is_told and isinstance(profiled, Profiled)):
            failure = as_failure(profiled if is_told else stages)
            log = folder / "trials" / ("profile" if is_told else "diagnosis") / "stderr.log"
            raise WorkloadError(
                f"{options.workload.model_path} cannot be profiled: {describe(failure)}\n"
                f"Whole log: {log}"
            )
        if isinstance(stages, Diagnosed):
            diagnosis, known = diagnosis_of(context, stages, rate), context.space.notes
            notes = narrowed(context.space, diagnosis).notes
            show_profile(diagnosis, [note for note in notes if note not in known], profiled)
        else:
            show_profile(None, [f"{describe(stages)}."], profiled)


def _rate(context: SearchContext, runner: Runner, folder: Path) -> float | None:
    """Return the samples per second of training as a whole; None if it cannot be timed."""
    if context.traits.seen.samples_per_second:
        return context.traits.seen.samples_per_second
    whole = runner.run(context.job(Measure(MeasurePlan()), context.baseline), folder)
    return whole.measurement.samples_per_second if isinstance(whole, Measured) else None
