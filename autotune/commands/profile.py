"""Command `profile`: show what a training waits for, and how to fix it."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from autotune.commands import common, execute
from autotune.commands import script_options as scripts
from autotune.console.lines import profile_lines, search_words, written_lines
from autotune.console.progress import answer, kept_files, signs_of_life
from autotune.context.options import SearchOptions
from autotune.context.search_context import SearchContext, survey
from autotune.process.stop import unwind_on_sigterm
from autotune.searching.run.diagnosis import (
    ProfiledTraining,
    diagnosis_of,
    limits_of,
    narrowed,
    time_stages,
)
from autotune.values.errors import WorkloadError
from autotune.values.outcome import Diagnosed, Failure, Profiled, as_failure, describe
from autotune.values.text import json_text

_WATCH_SECONDS = 8.0


@click.command(
    cls=scripts.ScriptCommand,
    params=[common.MODEL],
    sections={
        "The profile": [common.SPACE, common.JSON],
        "A training script": scripts.CALLED,
        "A model.py": [common.BASELINE],
        "Devices and processes": [common.DEVICE, common.PROCESSES],
    },
)
def profile(model: Path, as_json: bool, **flags: Any) -> None:
    """Show what MODEL's training waits for, how to fix it, and settings that cannot matter.

    MODEL is a model.py or an unchanged training script (also an installed command, or with -m a
    module). Arguments of the script go after `--`.
    """
    model, script = scripts.called_script(model, flags, watch_seconds=_WATCH_SECONDS)
    unwind_on_sigterm()
    execute_profile(common.options_of(model, **flags, script=script), as_json)


def execute_profile(options: SearchOptions, as_json: bool) -> None:
    """Show the phases of a training, and the findings."""
    with (
        execute.scratch_folder() as folder,
        kept_files() as keep,
        execute.one_runner(folder, keep) as runner,
        signs_of_life("the profile") as write,
    ):
        options = replace(options, study=replace(options.study, folder=folder))
        context = survey(options, runner)
        known = context.traits.seen
        for line in written_lines(options.workload, known, context.processes):
            write(line)
        stages = time_stages(context, runner, _WATCH_SECONDS)
        seen = known.profiled or (stages.profiled if isinstance(stages, Diagnosed) else None)
        if seen is None:
            log = folder / "trials" / "diagnosis" / "stderr.log"
            raise WorkloadError(
                f"{options.workload.model_path} cannot be profiled: "
                f"{describe(as_failure(stages))}\nWhole log: {log}"
            )
    if not seen.steps:
        path = options.workload.model_path
        raise WorkloadError(f"{path} ended before its steps were timed. Let it train longer.")
    _tell(context, stages, seen, as_json)


def _tell(
    context: SearchContext, stages: Diagnosed | Failure, seen: Profiled, as_json: bool
) -> None:
    """Print the phases if they are known, the findings, and the command that follows."""
    if isinstance(stages, Diagnosed):
        samples = seen.steps * context.baseline.effective_batch * context.processes
        rate = context.traits.seen.samples_per_second or samples / seen.seconds
        diagnosis = diagnosis_of(context, stages, rate)
        space = narrowed(context.space, diagnosis)
        notes = [note for note in space.notes if note not in context.space.notes]
    else:
        diagnosis, space, notes = None, context.space, [describe(stages)]
    of = (seen, context.facts, context.machine, space, context.memory_limit_bytes, diagnosis)
    findings = ProfiledTraining(*of).findings()
    following = search_words(context.options.workload)
    data = {
        "bottleneck": diagnosis and diagnosis.bound,
        "phases": diagnosis and limits_of(diagnosis.stages),
        "reached": diagnosis and diagnosis.reached,
        "doubt": diagnosis and diagnosis.doubt,
        "notes": notes,
        "findings": [asdict(one) for one in findings],
        "next": following,
    }
    lines = [*profile_lines(diagnosis, notes, findings), f"\nnext: {following}"]
    answer(lines, json_text(data) if as_json else None)
