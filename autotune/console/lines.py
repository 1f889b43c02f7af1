"""Render a search in lines: its plan, its events, its result; and the result of a comparison.

Secrets among a script's arguments are masked. Programs get each result as one JSON object.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from autotune.accuracy.accuracy_verdict import INCUMBENT_SEEDS
from autotune.calling.arguments import is_secret
from autotune.comparison.compare import ComparisonOptions, over_recorded
from autotune.comparison.race import ROUND_COUNTS
from autotune.comparison.rounds import PairedComparison
from autotune.configuration import best_config
from autotune.configuration.job import MeasurePlan
from autotune.configuration.script import ScriptOptions
from autotune.configuration.training_config import TrainingConfig, render
from autotune.context.options import WorkloadOptions
from autotune.context.search_context import SearchContext
from autotune.knobs.base import spelled
from autotune.searching.confirmation.confirm import MOST_WITHOUT
from autotune.searching.run import events
from autotune.searching.run.diagnosis import NEGLIGIBLE, Diagnosis, Finding, limits_of, percent
from autotune.searching.run.time_budget import RUNS, needed_trials
from autotune.searching.trials.drift import conditions
from autotune.study.facts import FinishedTrial
from autotune.values.measurement import STOPPED_EARLY
from autotune.values.outcome import Observed, Surroundings
from autotune.values.statistics import Interval
from autotune.values.text import (
    by_reason,
    flag_of_seconds,
    json_text,
    readable,
    rounds_text,
    size,
    span,
)

# Most paths that a line names, and findings of a profile.
_MOST, _MOST_FINDINGS = 5, 6
_UNTOLD = 2  # rounds up to which the interval is too wide to show
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
    options, space, goal = context.options, context.space, context.objective
    objective = f"steady-state {context.rate_unit}"
    if goal.run_samples is not None:
        run = f"{goal.run_samples} {context.unit}"
        objective = f"time of a run of {run}, start-up and compilation included"
    if goal.to_loss:
        loss = "that yours reach" if goal.loss is None else f"of {goal.loss:g}"
        objective = f"time until the training loss {loss} is reached"
    launch, several = options.resources.launch, ""
    if context.processes != 1 or launch is not None:
        noun = "process" if context.processes == 1 else "processes"
        starter = "" if launch is None else f", started by {launch}"
        several = f", {context.processes} {noun} per trial{starter}"
    budget = f"{min(context.trials, space.size)} trials"
    if context.time_budget_seconds is not None:
        budget += f" or {span(context.time_budget_seconds)}"
    runs = written_lines(options.workload, context.traits.seen, context.processes)
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
    if context.options.workload.script and not context.traits.seen.training_loader:
        own = {k: v for k, v in own.items() if k.name != "batch_size" and v != k.idle}
    told = {k.name: value for k, value in config if k.name in varied or k in own}
    return f"{render(told)}; otherwise PyTorch's defaults" if told else "PyTorch's defaults"


def _observed_lines(context: SearchContext) -> Iterator[str]:
    """Yield lines on the observed training of the unchanged script."""
    seen = context.traits.seen
    if context.options.workload.script is None:
        return
    yield (
        f"{context.options.workload.model_path} is run as a training script: each trial starts it "
        "and times some of its steps"
    )
    for name in seen.loaders:
        use = "feeds training" if name == seen.training_loader else "is left as it is"
        yield f"DataLoader {name.removesuffix('#0')} {use}"
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


def written_lines(workload: WorkloadOptions, seen: Observed, processes: int) -> list[str]:
    """Return the lines on the command of a script and on where it was seen to write."""
    script = workload.script
    if script is None:
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


def search_words(workload: WorkloadOptions) -> str:
    """Return the command that searches a workload, with its arguments after `--`."""
    path, script = workload.model_path, workload.script
    if script is not None:
        script = replace(script, arguments=("--", *script.arguments))
    return f"autotune search {path if script is None else command_words(path, script)}"


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
    above = {Path(folder) for folder in folders} - {Path.cwd()}
    return [folder for folder in folders if above.isdisjoint(Path(folder).parents)]


def _listed(paths: Sequence[str], kept: str = "") -> str:
    shown, others = ", ".join(map(_relative, paths[:_MOST])), kept and f" (see {_relative(kept)})"
    more = len(paths) - _MOST
    return f"{shown} and {more} more{others}" if more > 0 else shown


def _relative(path: str) -> str:
    here = Path.cwd()
    if Path(path) == here:
        return "the current directory"
    return str(Path(path).relative_to(here)) if here in Path(path).parents else path


def estimate(context: SearchContext) -> str:
    """Return how many processes a search starts, within its time budget if it has one.

    torch is imported once for most of them.
    """
    seen, plan, budget = context.traits.seen, MeasurePlan(), context.time_budget_seconds
    each = context.start_seconds + plan.max_seconds
    if seen.steps_per_second:
        timing = max(plan.max_seconds, plan.block_counts[0] / seen.steps_per_second)
        start = max(0.0, seen.start_seconds - seen.import_seconds)
        each = start + plan.warmup_steps / seen.steps_per_second + timing
    least, most = _counts(context)
    room = most if budget is None else min(most, max(1, round(budget / max(1.0, each))))
    count = f"{least} to {room}" if room > least else f"{room}"
    noun = "starts of the script" if context.options.workload.script else "processes"
    within = "" if budget is None else f" in {span(budget)}"
    told = f"about {count} {noun}{within}, about {span(each)} each with your settings"
    if room < least:
        enough = flag_of_seconds(math.ceil(least * each / 60) * 60)
        return f"{told}: perhaps too few, a result takes {least}. Give --time-budget {enough}"
    return told


def _counts(context: SearchContext) -> tuple[int, int]:
    """Return the fewest processes with which a search ends with an answer, and the most."""
    trials, judge = min(context.trials, context.space.size), context.judge
    with_budget = context.time_budget_seconds is not None
    least = RUNS + (needed_trials(context) if with_budget else trials) + 2 * ROUND_COUNTS[0]
    most = RUNS + trials + (2 + MOST_WITHOUT) * ROUND_COUNTS[-1]
    if judge.needs_whole_runs:
        # A seed of the untouched script at least. At most each trial has its first losses compared
        # and a seed of its own, and an incumbent is validated on seeds of both.
        least += 1
        most += 2 * trials + 2 * INCUMBENT_SEEDS
    if judge.by == "gradients":
        most += trials
    return least, most


class EventLines:
    """Renders the events of one search, in their order."""

    def __init__(self) -> None:
        self.context: SearchContext | None = None
        """Context of the search; None before it is known."""
        self.doing = ""
        """The current step, in a few words."""
        self._timed: TrainingConfig | None = None
        """Settings of the last round, which those that follow do not repeat."""

    def of(self, event: events.Event) -> Iterator[str]:
        """Yield the lines of the next event; of a trial's two, the second is the state so far."""
        match event:
            case events.Planned(context, finished_before):
                self.context = context
                before = [f"continuing after {finished_before} finished trials"]
                yield from plan_lines(context) + before * (finished_before > 0)
            case events.StagesTimed(diagnosis, space):
                known = () if self.context is None else self.context.space.notes
                notes = [f"  {note}" for note in space.notes if note not in known]
                remain = [f"  {space.size} configurations remain"] if notes else []
                yield from (*stage_lines(diagnosis), *notes, *remain)
            case events.PhaseStarted(phase, detail):
                self.doing = phase
                yield f"  {detail}" if phase == "diagnosis" else f"\n{phase}: {detail}"
            case events.StepStarted(detail):
                self.doing = detail
                yield f"  {detail}"
            case events.TrialStarted(number, config):  # shown when it ends
                self.doing = f"trial {number}: {self.differences(config)}"
            case events.TrialEnded(trial, baseline, best, elapsed_seconds, eta):
                self.doing = "choosing the next trial"
                yield self._trial_line(trial, baseline)
                left = "" if eta is None else f", about {span(eta)} left"
                best_so_far = f"trial {best.number}, {gain_text(best, baseline).strip()}"
                elapsed = f"{span(elapsed_seconds)} elapsed{left}"
                yield f"      best so far: {best_so_far}   {elapsed}"
            case events.RoundEnded(config, ratios, interval, disturbed=disturbed):
                whose = "" if config == self._timed else f"  {self.differences(config)}"
                self._timed = config
                yield round_line(ratios, interval, disturbed) + whose
            case events.RoundVoid(number, disturbance):
                yield void_line(number, disturbance)
            case events.CandidateRefused(trial, reason):
                yield f"  trial {trial.number} not confirmed: {reason}"
            case events.Noted(text):
                yield f"  {text}"
            case events.TrialsEnded(reason):
                yield f"stopping trials: {reason}"
            case events.Warned(warning):
                yield f"warning: {warning}"

    def differences(self, config: TrainingConfig) -> str:
        """Return the settings that differ from the user's, as text."""
        assert self.context is not None
        return render(config.differences(self.context.baseline)) or "your settings"

    def _trial_line(self, trial: FinishedTrial, baseline: FinishedTrial) -> str:
        settings = self.differences(trial.config)
        rate, memory = trial.details.samples_per_second, trial.details.peak_memory_bytes
        columns = [f"{trial.number:4d}", f"{rate:9.1f}/s" if rate else f"{'-':>11}"]
        gain = gain_text(trial, baseline)
        columns += [gain, f"{size(memory) if memory else '-':>9}", settings, verdict_text(trial)]
        return "  ".join(columns)


def waiting_line(seconds: float, what: str) -> str:
    """Return a line that says that a step still runs, after `seconds` of silence."""
    return f"  ... {what or 'inspecting the machine and the file'}, {span(seconds)} so far"


def stage_lines(diagnosis: Diagnosis) -> list[str]:
    """Return the samples/s of each phase of a step by itself, and the bottleneck."""
    limits = limits_of(diagnosis.stages)
    width = max(map(len, limits))
    bottleneck = "" if diagnosis.doubt else f"the bottleneck is {diagnosis.bound}; "
    return [
        f"\ndiagnosis: {bottleneck}by itself, each phase of a step reaches",
        *(f"  {name:<{width}}  {rate:10.1f}/s" for name, rate in limits.items()),
        *(f"  {line}" for line in bound_lines(diagnosis)),
    ]


def profile_lines(
    diagnosis: Diagnosis | None, notes: Sequence[str], findings: Sequence[Finding]
) -> Iterator[str]:
    """Yield the lines on a training's phases, if they are known, on its space and its findings."""
    if diagnosis is not None:
        yield from stage_lines(diagnosis)
        if diagnosis.reached is not None and diagnosis.reached_share is not None:
            rate = f"{readable(diagnosis.reached)} {diagnosis.rate_unit}"
            share = percent(diagnosis.reached_share)
            yield f"  training reaches {rate}, {share} of {diagnosis.bound} by itself"
        notes = [f"run it again: {diagnosis.doubt}"] if diagnosis.doubt else notes
    yield from (f"  {note}" for note in notes)
    none = f"no findings: nothing that a profile looks for takes {percent(NEGLIGIBLE)} of the time"
    some = "findings, with their shares of the time (which may overlap):"
    yield f"\n{some if findings else none}"
    for one in findings[:_MOST_FINDINGS]:
        share = "risk" if one.share is None else percent(one.share) if one.share else "note"
        remedy = f"search {', '.join(one.settings)}; or " if one.settings else ""
        remedy += one.change
        yield f"{share:>6}  {one.name}: {one.evidence}"
        yield f"{'':>6}  {remedy[0].upper()}{remedy[1:]}."
    if (more := len(findings) - _MOST_FINDINGS) > 0:
        yield f"{'':>6}  and {more} more, see --json"


def bound_lines(diagnosis: Diagnosis) -> list[str]:
    """Return lines on the GPU's busy share, and on the exchange of several processes."""
    if diagnosis.doubt:
        return []
    lines = []
    if diagnosis.busy_share is not None:
        line = f"The GPU is busy {100 * diagnosis.busy_share:.0f} % of a step"
        if diagnosis.bound == "launching":
            line += ": it waits for kernel launches. Larger batches or CUDA graphs can help"
        lines.append(f"{line}.")
    if (exchange := diagnosis.stages.exchange_seconds) is not None:
        share = 100 * exchange / diagnosis.stages.compute_seconds
        lines.append(f"The gradient all-reduce takes {share:.2g} % of a step.")
    return lines


def round_line(ratios: Sequence[float], interval: Interval, disturbed: int | None = None) -> str:
    """Return the line on the last round, with the interval over all rounds."""
    known = [f"so far {interval[0]:.3f} to {interval[1]:.3f}"] if len(ratios) > _UNTOLD else []
    told = ", ".join([*known, *([f"{disturbed} disturbed"] if disturbed else [])])
    return f"  round {len(ratios)}  {ratios[-1]:.3f}x" + (f"  ({told})" if told else "")


def void_line(number: int, disturbance: str) -> str:
    """Return the line on a round that does not count, with its reason."""
    return f"  round {number} discarded ({disturbance}), rerunning"


def verdict_text(trial: FinishedTrial) -> str:
    """Return the verdict on a trial, with remarks on its timing."""
    if not trial.verdict.feasible:
        return f"rejected: {trial.verdict.reason}"
    run = trial.details.measurement
    stopped = run is not None and STOPPED_EARLY in run.flags
    verdict = "stopped early, clearly slower" if stopped else "ok"
    return "; ".join([verdict, *conditions(trial.details)])


def gain_text(trial: FinishedTrial, baseline: FinishedTrial) -> str:
    """Return the speed-up of a trial over the baseline, six wide; `~` if it is in part assumed."""
    value, reference = trial.verdict.value, baseline.verdict.value
    assumed = "~" if trial.details.assumed_samples else ""
    return f"{f'{assumed}{value / reference:.2f}x' if value and reference else '-':>6}"


def answer_lines(event: events.Answered | events.NothingFeasible) -> list[str]:
    """Return the result of a search in a few lines."""
    if isinstance(event, events.NothingFeasible):
        reasons = [f"  {count} x {reason}" for reason, count in event.reasons.items()]
        first = "Every trial was rejected, your own settings included; best.yaml was not written:"
        return [first, *reasons]
    best = event.best
    searched = best_config.searched_facts(best.evidence.searched, best.changed)
    return [
        best_config.headline(best),
        *best_config.fact_lines([*best_config.facts(best), *searched, *_of_the_search(event)]),
    ]


def _of_the_search(event: events.Answered) -> Iterator[best_config.Fact]:
    """Yield facts that only the search knows, and how to train with the result."""
    best, own = event.best, event.best.evidence.baseline.config
    for why, names in by_reason(event.own_settings).items():
        yield "not varied", f"{render({name: own.get(name) for name in names})}: {why}"
    if (text := best_config.pays_back_text(best, event.seconds)) is not None:
        yield "pays back", text
    if event.remark is not None:
        yield "note", event.remark
    yield "written to", str(event.path)
    if best.keeps_baseline:
        return
    model, script = Path(best.provenance.model), event.script
    words = None if script is None else command_words(model, script)
    yield "use it", ", or ".join(how_to_use(event.path, words))


def how_to_use(path: Path, words: str | None) -> list[str]:
    """Return ways to train with a best.yaml; `words` call the script, None for a model.py."""
    quoted = shlex.quote(str(path))
    if words is not None:
        return [f"autotune run {quoted} {words}"]
    return [f"autotune.load({str(path)!r})", f"autotune export {quoted} --format python"]


def result(event: events.Answered | events.NothingFeasible) -> str:
    """Return the end of a search as one JSON object for programs."""
    if isinstance(event, events.NothingFeasible):
        data: dict[str, Any] = {"answer": "none", "reasons": event.reasons}
    else:
        answer = "keep" if event.best.keeps_baseline else "faster"
        data = {
            "answer": answer,
            "path": str(event.path),
            "best": event.best.model_dump(mode="json"),
        }
        if event.seconds is not None:
            data["seconds"] = readable(event.seconds)
    return json_text(data)


def last_round_line(before: PairedComparison, comparison: PairedComparison) -> str:
    """Return the line on the round between these two states of a comparison."""
    if len(comparison.repeated) > len(before.repeated):
        return void_line(len(comparison.ratios) + 1, comparison.repeated[-1])
    return round_line(comparison.ratios, comparison.interval, comparison.disturbed)


def comparison_line(options: ComparisonOptions, comparison: PairedComparison) -> str:
    """Return a sentence that says how much faster A is than B."""
    low, high = comparison.interval
    line = (
        f"{options.a.label} is {comparison.ratio:.2f}x as fast as {options.b.label} "
        f"({low:.2f} to {high:.2f}, {rounds_text(len(comparison.ratios), comparison.disturbed)})"
    )
    if options.b.config is None and options.a.confirmed is not None:
        low, high = options.a.confirmed
        state = "still holds" if options.is_met(comparison) else "no longer holds"
        line += f"; previously confirmed {low:.2f} to {high:.2f}, which {state}"
    return "; ".join([line, *_regression(options, comparison)])


def _regression(options: ComparisonOptions, comparison: PairedComparison) -> Iterator[str]:
    """Yield A's speed over the recorded one, and whether it is slower by more than allowed."""
    if options.against is not None:
        evidence = options.against.evidence
        ratio, (low, high) = options.speed(comparison)
        rate = f"{evidence.best.samples_per_second:g} {evidence.rate_unit}"
        yield f"{ratio:.2f}x the recorded {rate} ({low:.2f} to {high:.2f})"
        if options.b.config is None:
            own, _ = over_recorded(comparison.baseline, evidence.baseline)
            yield f"your settings run at {own:.2f}x their recorded rate"
    if options.max_regression is not None:
        state = "is slower" if options.has_regressed(comparison) else "was not shown to be slower"
        yield f"it {state} by more than {100 * options.max_regression:g} %"


def comparison_result(options: ComparisonOptions, comparison: PairedComparison) -> str:
    """Return a comparison as one JSON object for programs."""
    sides = {"a": (options.a, comparison.candidate), "b": (options.b, comparison.baseline)}
    data: dict[str, Any] = {
        "ratio": comparison.ratio,
        "ci95": list(comparison.interval),
        "rounds": len(comparison.ratios),
        "disturbed_rounds": comparison.disturbed,
        "repeated_rounds": len(comparison.repeated),
        "ratios": list(comparison.ratios),
        "confirmed_faster": comparison.is_faster,
        "still_holds": None if options.a.is_edited else options.is_met(comparison),
        "regressed": None if options.max_regression is None else options.has_regressed(comparison),
    }
    if options.against is not None:
        ratio, interval = options.speed(comparison)
        recorded = options.against.evidence.best.samples_per_second
        data["against"] = {"samples_per_second": recorded, "ratio": ratio, "ci95": list(interval)}
    for name, (side, runs) in sides.items():
        data[name] = {
            "settings": side.label,
            "samples_per_second": median(run.samples_per_second for run in runs),
            "peak_memory_bytes": max(run.peak_memory_bytes for run in runs),
        }
    return json_text(data)
