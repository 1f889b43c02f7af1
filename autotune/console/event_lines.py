"""Texts of a search's events, for plain lines and for the table of a terminal alike.

`Remark` is an event that takes one line. The other functions render one fact of an event each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from autotune.configuration.training_config import render
from autotune.console.script_lines import script_lines
from autotune.context.search_context import SearchContext
from autotune.knobs.base import spelled
from autotune.searching.run.diagnosis import Diagnosis
from autotune.searching.run.events import (
    CandidateRefused,
    CandidateSetAside,
    CostsMeasured,
    Event,
    IncumbentRevoked,
    LeftOut,
    PhaseStarted,
    RoundVoid,
    StepStarted,
    TrialEnded,
    TrialsEnded,
    TrialStarted,
    Warned,
)
from autotune.searching.trials.drift import conditions
from autotune.storage.finished_trial import FinishedTrial
from autotune.values.measurement import STOPPED_EARLY
from autotune.values.outcome import Observed
from autotune.values.statistics import Interval
from autotune.values.text import by_reason, size, span

Remark = (
    CandidateRefused
    | CandidateSetAside
    | CostsMeasured
    | IncumbentRevoked
    | LeftOut
    | RoundVoid
    | TrialsEnded
    | Warned
)
"""An event that takes one line."""

_DATA_PARALLEL = (
    "nn.DataParallel: searched as it is. DistributedDataParallel, a process for each GPU, is what "
    "PyTorch advises in its place"
)


def remark_line(event: Remark) -> str:
    """Return the line of an event that takes one."""
    match event:
        case CandidateRefused(trial, reason):
            return f"  trial {trial.number} is not confirmed: {reason}"
        case CandidateSetAside(trial, other):
            return f"  trial {trial.number} is set aside for trial {other.number}"
        case CostsMeasured():
            return costs_line(event)
        case IncumbentRevoked(trial, reason, best):
            now = f"trial {best.number}" if best.number else "your settings"
            return f"  trial {trial.number} is revoked: {reason}; best so far: {now}"
        case LeftOut(note):
            return f"  left out: {note}"
        case RoundVoid(number, disturbance):
            return void_line(number, disturbance)
        case TrialsEnded(reason):
            return f"no further trial: {reason}"
        case Warned(warning):
            return f"warning: {warning}"
        case _:
            assert_never(event)


def doing(event: Event) -> str:
    """Return the step that begins with an event, in a few words; empty if none does."""
    match event:
        case PhaseStarted(phase):
            return phase
        case StepStarted(detail):
            return detail
        case TrialStarted(number):
            return f"trial {number}"
        case TrialEnded():
            return "validating the best trial"
        case _:
            return ""


def waiting_line(seconds: float, what: str) -> str:
    """Return a line that says that a step still runs, after `seconds` of silence."""
    return f"  ... {what or 'looking at the machine, running the file'}, {span(seconds)} so far"


def _processes(context: SearchContext) -> str:
    """Return how many processes a trial has and what starts them; empty for one of our own."""
    launch = context.options.resources.launch
    if context.processes == 1 and launch is None:
        return ""
    started = "" if launch is None else f", started by {launch}"
    several = "process" if context.processes == 1 else "processes"
    return f", {context.processes} {several} in each trial{started}"


def plan_lines(context: SearchContext) -> list[str]:
    """Return the plan of a search: study, device, limits, space and budget."""
    options, space = context.options, context.space
    budget = f"{min(context.trials, space.size)} trials"
    if context.time_budget_seconds is not None:
        budget += f" or {span(context.time_budget_seconds)}"
    return [
        f"study {options.study.name} in {options.study.folder}",
        f"device {context.machine.device} ({context.machine.device_name}), "
        f"{context.machine.host.usable_cores} cores, torch {context.machine.torch}"
        + _processes(context),
        f"memory limit {size(context.memory_limit_bytes)}",
        *_script_lines(context),
        *script_lines(context),
        f"your settings: {_own_settings(context)}",
        f"objective: {_objective_line(context)}",
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
    return f"{render(told)}; all others are PyTorch's defaults" if told else "PyTorch's defaults"


def _script_lines(context: SearchContext) -> list[str]:
    """Return lines on the observed training of the unchanged script."""
    seen = context.observed
    if seen is None:
        return []
    return [
        f"{context.options.workload.model_path} is run as a training script: each trial runs "
        "it from its start into its training",
        *(
            f"DataLoader {name} "
            + ("feeds training" if name == seen.training_loader else "stays as it is")
            for name in seen.loaders
        ),
        f"{seen.steps_per_second:.4g} steps/s, {_rate(seen)}{_waiting(seen)}",
        *([_DATA_PARALLEL] if seen.data_parallel else []),
        *(f"{', '.join(names)}: {why}" for why, names in by_reason(seen.fixed).items()),
        *_judge_lines(context),
    ]


def _judge_lines(context: SearchContext) -> list[str]:
    """Return a line on what judges a script's quality, or why nothing does."""
    script = context.options.workload.script
    if script is None or script.metric is not None:
        return []
    if script.loss is not None:
        return ["quality: its training loss, on which it calls backward"]
    return [script.name_a_metric] if script.name_a_metric else []


def _rate(seen: Observed) -> str:
    if seen.counts_samples:
        return f"{seen.samples_per_second:.4g} samples/s"
    return "samples are unknown: a step counts as one sample"


def _waiting(seen: Observed) -> str:
    """Return how long training waits for its loader; empty if it has none."""
    if not seen.training_loader:
        return ""
    return f", waiting for data {100 * seen.wait_share:.2g} % of the time{_beside_gpu(seen)}"


def _beside_gpu(seen: Observed) -> str:
    """Return a remark on waiting: an accelerator may compute meanwhile what it was told before."""
    return "" if seen.device == "cpu" else f", beside which {seen.device} may compute"


def _objective_line(context: SearchContext) -> str:
    samples = context.objective.run_samples
    if samples is None:
        return f"{context.rate_unit} of the steady state"
    return f"time of a run of {samples} {context.unit}, start and compilation included"


def stage_lines(diagnosis: Diagnosis) -> list[str]:
    """Return the samples/s of each stage alone, and the stage that bounds training."""
    limits = diagnosis.limits()
    width = max(map(len, limits))
    waits = "" if diagnosis.doubt else f"your settings wait for {diagnosis.bound}; "
    told = [*filter(None, [busy_line(diagnosis)]), *rank_lines(diagnosis)]
    return [
        f"\ndiagnosis: {waits}each stage alone would reach",
        *(f"  {name:<{width}}  {rate:10.1f}/s" for name, rate in limits.items()),
        *(f"  {line}" for line in told),
    ]


def busy_line(diagnosis: Diagnosis) -> str:
    """Return a line on the share of a step in which the GPU is busy; "" where it is not known."""
    if diagnosis.busy_share is None or diagnosis.doubt:
        return ""
    line = f"GPU busy {100 * diagnosis.busy_share:.0f} % of a step"
    if diagnosis.bound == "launching":
        return f"{line}: it waits for launches. Larger batches or CUDA graphs can help."
    return f"{line}."


def rank_lines(diagnosis: Diagnosis) -> list[str]:
    """Return lines on the exchange of several processes and on one that the others wait for."""
    if diagnosis.doubt:
        return []
    lines = []
    if (share := diagnosis.exchange_share) is not None:
        lines.append(f"Exchanging gradients takes {100 * share:.2g} % of a step.")
    if (slow := diagnosis.slow_rank) is not None:
        low, high = slow.interval
        lines.append(
            f"Rank {slow.rank} computes {slow.ratio:.2f} times as long as the others "
            f"({low:.2f} to {high:.2f}), which wait for it."
        )
    return lines


def costs_line(event: CostsMeasured) -> str:
    """Return a line on the seconds of a trial, a confirmation round and an accuracy seed."""
    parts = {"start": event.start_seconds, "timing": event.timing_seconds}
    shared = ""
    if event.is_dataset_shared:
        shared = f"; the dataset {event.dataset_seconds:.1f} s, built once"
    elif event.dataset_seconds:
        parts = {"dataset": event.dataset_seconds, **parts}
    told = ", ".join(f"{name} {seconds:.1f}" for name, seconds in parts.items())
    seed = "" if event.seed_seconds is None else f", an accuracy seed {span(event.seed_seconds)}"
    return (
        f"  a trial takes about {span(sum(parts.values()))} ({told}), a confirmation round "
        f"{span(event.round_seconds)}{seed}{shared}"
    )


def round_line(ratios: Sequence[float], interval: Interval, disturbed: int | None = None) -> str:
    """Return the line on the last round, with the interval over all rounds."""
    low, high = interval
    count = f", {disturbed} disturbed" if disturbed else ""
    return f"  round {len(ratios)}  {ratios[-1]:.3f}x  (so far {low:.3f} to {high:.3f}{count})"


def void_line(number: int, disturbance: str) -> str:
    """Return the line on a round that does not count, with its reason."""
    return f"  round {number} void: {disturbance}; repeated"


def rate_of(trial: FinishedTrial) -> float | None:
    """Return the samples per second of a trial; None if it was not timed."""
    return trial.details.samples_per_second


def tokens_columns(trial: FinishedTrial, baseline: FinishedTrial) -> list[str]:
    """Return the column of a trial's tokens/s; none in a search that counts no tokens."""
    if baseline.details.tokens_per_second is None:
        return []
    tokens = trial.details.tokens_per_second
    return [f"{tokens:9.0f} tokens/s" if tokens else f"{'-':>18}"]


def verdict_text(trial: FinishedTrial) -> str:
    """Return the verdict on a trial, with remarks on its timing."""
    if not trial.verdict.feasible:
        return f"infeasible: {trial.verdict.reason}"
    notes = (
        ["stopped early, clearly slower"]
        if STOPPED_EARLY in (trial.details.flags or ())
        else ["ok"]
    )
    return ", ".join([*notes, *conditions(trial.details)])


def gain_text(trial: FinishedTrial, baseline: FinishedTrial) -> str:
    """Return the ratio of a trial's value to the baseline's, six characters wide."""
    value, reference = trial.verdict.value, baseline.verdict.value
    return f"{value / reference:5.2f}x" if value and reference else f"{'-':>6}"
