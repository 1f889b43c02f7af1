"""Render the plan of a search: what it runs, how often, for how long, and where scripts write.

Arguments of a script that look like secrets are masked.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from autotune.accuracy.accuracy_verdict import INCUMBENT_SEEDS
from autotune.calling.arguments import is_secret
from autotune.comparison.compare import ComparisonOptions
from autotune.comparison.race import LOOKS
from autotune.configuration.job import MeasurePlan
from autotune.configuration.script import ScriptOptions
from autotune.configuration.training_config import render
from autotune.context.options import WorkloadOptions
from autotune.context.search_context import SearchContext
from autotune.knobs.base import spelled
from autotune.searching.confirmation.confirm import MOST_AT_ONCE
from autotune.searching.run.time_budget import RUNS, needed_trials
from autotune.values.outcome import Observed, Surroundings
from autotune.values.text import by_reason, readable, size, span

# Most paths that a line names.
_MOST = 5
_SENT = {
    "wandb": "wandb is switched off, even if the script sets a mode",
    "MLflow": "MLflow writes to the trials' directories, even if the script sets a tracking URI",
    "Comet": "Comet is off (COMET_AUTO_LOG_DISABLE=1), unless the script passes disabled=False",
    "Neptune": "Neptune is offline (NEPTUNE_MODE), unless the script passes mode=...",
    "ClearML": "ClearML is offline (CLEARML_OFFLINE_MODE=1), unless the script sets it otherwise",
    "Trackio": "Trackio writes to the trials' directories, even if the script names a server",
    "TensorBoard": "TensorBoard writes to the trials' directories",
}
_SHAPES = "its shapes or values change; compile_dynamic=true may compile it only once"
_TRIED = "set by the script; trials replace its values"


def plan_lines(context: SearchContext) -> list[str]:
    """Return the plan of a search: study, device, limits, space and budget."""
    options, space, samples = context.options, context.space, context.objective.run_samples
    objective = f"steady-state {context.rate_unit}"
    if samples is not None:
        objective = f"time of a run of {samples} {context.unit}, start-up and compilation included"
    launch, several = options.resources.launch, ""
    if context.processes != 1 or launch is not None:
        noun = "process" if context.processes == 1 else "processes"
        starter = "" if launch is None else f", started by {launch}"
        several = f", {context.processes} {noun} per trial{starter}"
    budget = f"{min(context.trials, space.size)} trials"
    if context.time_budget_seconds is not None:
        budget += f" or {span(context.time_budget_seconds)}"
    runs = written_lines(options.workload, context.observed, context.processes)
    if runs:  # of a script
        runs.insert(1, f"  {estimate(context)}")
    return [
        f"study {options.study.name} in {options.study.folder}",
        f"device {context.machine.device} ({context.machine.device_name}), "
        f"{context.machine.host.usable_cores} cores, torch {context.machine.torch}" + several,
        f"memory limit {size(context.memory_limit_bytes)}",
        *_observed_lines(context),
        *runs,
        f"your settings: {_own_settings(context)}",
        f"objective: {objective}",
        f"search space {options.sampling.space}: {space.size} configurations",
        *(f"  {name}: {', '.join(map(spelled, v))}" for name, v in space.varied().items()),
        *(f"  note: {note}" for note in space.notes),
        f"budget: {budget}",
    ]


def _own_settings(context: SearchContext) -> str:
    """Return the user's settings that the search varies, or that are no default of PyTorch.

    Where no loader feeds a script, the first dimension of what its model is given may be no batch,
    and a loader's settings are not the user's.
    """
    config, varied = tuple(context.baseline.items()), context.space.varied()
    own = {k: value for k, value in config if value != k.default}
    if context.observed is not None and not context.observed.training_loader:
        own = {k: v for k, v in own.items() if k.name != "batch_size" and v != k.idle}
    told = {k.name: value for k, value in config if k.name in varied or k in own}
    return f"{render(told)}; otherwise PyTorch's defaults" if told else "PyTorch's defaults"


def _observed_lines(context: SearchContext) -> Iterator[str]:
    """Yield lines on the observed training of the unchanged script."""
    seen, script = context.observed, context.options.workload.script
    if seen is None or script is None:
        return
    yield (
        f"{context.options.workload.model_path} is run as a training script: each trial starts it "
        "and times some of its steps"
    )
    for name in seen.loaders:
        use = "feeds training" if name == seen.training_loader else "is left as it is"
        yield f"DataLoader {name} {use}"
    rate = "samples unknown: each step counts as one sample"
    if seen.counts_samples:
        rate = f"{readable(seen.samples_per_second)} samples/s"
    if seen.training_loader:
        rate += f", waiting for data {100 * seen.wait_share:.2g} % of the time"
        # An accelerator may still compute what was queued before.
        rate += "" if seen.device == "cpu" else f" (while {seen.device} may still compute)"
    yield f"{readable(seen.steps_per_second)} steps/s, {rate}"
    if seen.recompilations:
        yield f"code was compiled {seen.recompilations} times within a few steps: {_SHAPES}"
    for why, names in by_reason(seen.fixed).items():
        yield f"{', '.join(names)}: {why}"
    if tried := [name for name in seen.own if name in context.space.varied()]:
        yield f"{', '.join(tried)}: {_TRIED}"
    if context.judge.by == "training_loss":
        yield "quality metric: its training loss, the tensor on which it calls backward()"
    elif context.judge.name_a_metric:
        yield context.judge.name_a_metric


def written_lines(
    workload: WorkloadOptions | ComparisonOptions, seen: Observed | None, processes: int
) -> list[str]:
    """Return the lines on the command of a script and on where it was seen to write."""
    script = workload.script
    if script is None or seen is None:
        return []
    each = f", in each of {processes} processes" if processes > 1 else ""
    return [
        f"command: python {command_words(workload.model_path, script)}{each}",
        *(f"  {line}" for line in _places(script, seen.surroundings)),
        *(f"  {_SENT[name]}" for name in seen.surroundings.trackers),
    ]


def observing_line(path: Path, script: ScriptOptions) -> str:
    """Return the line before the first run of a script."""
    hint = "" if script.workdir else " (use --temp-workdir to isolate its files)"
    return f"running your script once to profile it: python {command_words(path, script)}{hint}"


def command_words(path: Path, script: ScriptOptions) -> str:
    """Return the script and its arguments, secrets masked, as a shell takes them after `python`."""
    words = [str(path)] if script.module is None else ["-m", script.module]
    hides = False
    for word in script.arguments:
        name, equals, _ = word.partition("=")
        words.append("***" if hides else f"{name}=***" if equals and is_secret(name) else word)
        hides = not hides and not equals and word.startswith("-") and is_secret(word)
    return shlex.join(words)


def _places(script: ScriptOptions, around: Surroundings) -> Iterator[str]:
    """Yield lines on where the script writes; only its first steps are known."""
    own = "each run has its own directory; " if script.workdir is not None else ""
    places = f"to: {_listed(_outermost(around.folders))}" if around.folders else "no file"
    yield f"{own}its first steps write {places} (later checkpoints are not known)"
    if around.overwritten:
        yield f"each run overwrites: {_listed(around.overwritten, around.kept)}"
    if around.deleted:
        yield f"each run deletes: {_listed(around.deleted, around.kept)}"
    yield "autotune backs up files that the script changes or deletes (not large in-place edits)"
    if script.workdir is None:
        yield "use --temp-workdir to run it in temporary directories"


def _outermost(folders: Sequence[str]) -> list[str]:
    """Return the folders without those in another one, unless that is the current folder."""
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
        return "the current directory"
    return str(Path(path).relative_to(here)) if here in Path(path).parents else path


def estimate(context: SearchContext) -> str:
    """Return how many processes a search starts, within its time budget if it has one.

    torch is imported once for most of them.
    """
    seen, plan, budget = context.observed, MeasurePlan(), context.time_budget_seconds
    each = context.start_seconds + plan.max_seconds
    if seen is not None and seen.steps_per_second:
        timing = max(plan.max_seconds, plan.looks[0] / seen.steps_per_second)
        start = max(0.0, seen.start_seconds - seen.import_seconds)
        each = start + plan.warmup_steps / seen.steps_per_second + timing
    least, most = _counts(context)
    room = most if budget is None else min(most, max(1, round(budget / max(1.0, each))))
    count = f"{least} to {room}" if room > least else f"{room}"
    noun = "processes" if seen is None else "starts of the script"
    within = "" if budget is None else f" in {span(budget)}"
    told = f"about {count} {noun}{within}, about {span(each)} each with your settings"
    if room < least:
        return f"{told}: perhaps too few, a result needs {least}. Give a longer --time-budget"
    return told


def _counts(context: SearchContext) -> tuple[int, int]:
    """Return the fewest processes with which a search ends with an answer, and the most."""
    trials, judge = min(context.trials, context.space.size), context.judge
    with_budget = context.time_budget_seconds is not None
    least = RUNS + (needed_trials(context) if with_budget else trials) + 2 * LOOKS[0]
    most = RUNS + trials + (MOST_AT_ONCE + 1) ** 2 + 2 * LOOKS[-1]
    if context.observed is not None and judge.has_quality:
        # A seed of the untouched script at least. At most each trial has its first losses compared
        # and a seed of its own, and an incumbent is validated on seeds of both.
        least += 1
        most += 2 * trials + 2 * INCUMBENT_SEEDS
    if judge.by == "gradients":
        most += trials
    return least, most
