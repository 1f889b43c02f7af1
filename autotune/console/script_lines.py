"""Describe the runs of a script before it is timed: the command, their number, where they write.

Arguments that look like secrets are masked.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from autotune.calling.arguments import is_secret
from autotune.comparison.compare import ComparisonOptions
from autotune.configuration.script import ScriptOptions
from autotune.console.estimate import starts_of_script
from autotune.context.options import WorkloadOptions
from autotune.context.search_context import SearchContext
from autotune.values.outcome import Observed
from autotune.values.workload_facts import Surroundings

# Most paths that a line names.
_MOST = 5
_SENT = {
    "wandb": "wandb is switched off, also where the script names a mode",
    "MLflow": "MLflow writes into the trials' folders, also where the script sets a tracking URI",
    "Comet": "Comet is switched off (COMET_AUTO_LOG_DISABLE=1), unless the script says"
    " disabled=False",
    "Neptune": "Neptune is offline (NEPTUNE_MODE) and writes into the trials' folders, unless the"
    " script says mode=...",
    "ClearML": "ClearML is offline (CLEARML_OFFLINE_MODE=1) and writes into the trials' folders,"
    " unless the script says otherwise",
    "Trackio": "Trackio writes into the trials' folders, also where the script names a Space or a"
    " server",
    "TensorBoard": "TensorBoard's event files are written into the trials' folders",
}


def script_lines(context: SearchContext) -> list[str]:
    """Return the lines on the runs of a script, before the first trial; none for a model.py."""
    workload, seen = context.options.workload, context.observed
    lines = written_lines(workload, seen, context.processes)
    if seen is not None and workload.script is not None:
        often = starts_of_script(context, seen)
        lines[1:1] = [f"  {line}" for line in often]
    return lines


def written_lines(
    workload: WorkloadOptions | ComparisonOptions, seen: Observed | None, processes: int
) -> list[str]:
    """Return the lines on the command of a script and on where it was seen to write."""
    script = workload.script
    if script is None or seen is None:
        return []
    each = f", in each of {processes} processes" if processes > 1 else ""
    return [
        f"runs: python {command_words(workload.model_path, script)}{each}",
        *(f"  {line}" for line in _places(script, seen.surroundings)),
        *(f"  {_SENT[name]}" for name in seen.surroundings.trackers),
    ]


def observing_line(path: Path, script: ScriptOptions) -> str:
    """Return the line before the first run of a script, which tells what the others will do."""
    harmless = "" if script.workdir else " (--workdir temporary: in folders that are removed)"
    return f"it runs once to be observed: python {command_words(path, script)}{harmless}"


def command_words(path: Path, script: ScriptOptions) -> str:
    """Return the script and its arguments, as a shell takes them after `python`."""
    name = [str(path)] if script.module is None else ["-m", script.module]
    return shlex.join([*name, *_masked(script.arguments)])


def _masked(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the arguments with stars for the values of names such as --api-token."""
    hides = False
    for word in arguments:
        name, equals, _ = word.partition("=")
        yield "***" if hides else f"{name}=***" if equals and is_secret(name) else word
        hides = not hides and not equals and word.startswith("-") and is_secret(word)


def _places(script: ScriptOptions, around: Surroundings) -> Iterator[str]:
    """Yield lines on where the script writes; only its first steps are known."""
    own = "each run is in a folder of its own; " if script.workdir is not None else ""
    places = f"to: {_listed(_outermost(around.folders))}" if around.folders else "no file"
    yield f"{own}in its first steps it writes {places}; later checkpoints are not known"
    if around.overwritten:
        yield f"each run overwrites: {_listed(around.overwritten, around.kept)}"
    if around.deleted:
        yield f"each run deletes: {_listed(around.deleted, around.kept)}"
    yield (
        "files that its Python code changes or deletes are kept as they were, but for large ones "
        "changed in place"
    )
    if script.workdir is None:
        yield "--workdir temporary tries it in folders that are removed"


def _outermost(folders: Sequence[str]) -> list[str]:
    """Return the folders less those in another one that is not the current folder."""
    above = {folder for folder in folders if folder != str(Path.cwd())}
    return [
        folder
        for folder in folders
        if not any(str(parent) in above for parent in Path(folder).parents)
    ]


def _listed(paths: Sequence[str], kept: str = "") -> str:
    shown = ", ".join(map(_relative, paths[:_MOST]))
    if len(paths) <= _MOST:
        return shown
    others = f" (see {_relative(kept)})" if kept else ""
    return f"{shown} and {len(paths) - _MOST} more{others}"


def _relative(path: str) -> str:
    here = Path.cwd()
    if Path(path) == here:
        return "the current folder"
    return str(Path(path).relative_to(here)) if here in Path(path).parents else path
