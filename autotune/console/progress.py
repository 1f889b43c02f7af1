"""Report a running search in plain lines on stderr.

On a terminal `autotune.console.live` draws a table in their place. `autotune.console.answer_lines`
renders the result.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

from autotune.configuration.training_config import TrainingConfig, render
from autotune.console.answer_lines import answer_lines, nothing_lines
from autotune.console.waiting import Waiting
from autotune.context.search_context import SearchContext
from autotune.knobs.base import spelled
from autotune.searching.run.diagnosis import Diagnosis
from autotune.searching.run.events import (
    Answered,
    CandidateRefused,
    CandidateSetAside,
    CostsMeasured,
    Event,
    IncumbentRevoked,
    LeftOut,
    NothingFeasible,
    PhaseStarted,
    Planned,
    RoundEnded,
    RoundVoid,
    StagesTimed,
    StagesUnknown,
    StepStarted,
    TrialEnded,
    TrialsEnded,
    TrialStarted,
    Warned,
)
from autotune.searching.trials.drift import conditions
from autotune.study.repair import Repaired
from autotune.study.study import FinishedTrial
from autotune.values.intervals import Interval
from autotune.values.text import about_left, clean, size, span

Write = Callable[[str], None]


def to_stderr(line: str) -> None:
    """Write a line to stderr, without foreign control characters and passwords."""
    sys.stderr.write(clean(line) + "\n")
    sys.stderr.flush()


@contextmanager
def signs_of_life(what: str) -> Iterator[Write]:
    """Say after every ten silent seconds that `what` still goes on, while the block runs.

    Yields:
        A function that writes any other line to stderr.
    """
    waiting = Waiting(lambda seconds: to_stderr(waiting_line(seconds, what)))

    def write(line: str) -> None:
        with waiting.saying():
            to_stderr(line)

    with waiting.running():
        yield write


@dataclass
class PlainProgress:
    """Writes each event in a line or two."""

    write: Write = to_stderr
    _context: SearchContext | None = field(default=None, init=False)
    _doing: str = field(default="", init=False)

    def wait(self, seconds: float) -> None:
        """Say that the last step goes on, after so many seconds of silence."""
        self.write(waiting_line(seconds, self._doing))

    def show(self, event: Event) -> None:
        """Write the lines of an event."""
        self._doing = doing(event) or self._doing
        match event:
            case Planned(context, finished_before):
                self._context = context
                self._lines(plan_lines(context))
                if finished_before:
                    self.write(f"continues after {finished_before} finished trials")
            case StagesTimed() | StagesUnknown():
                self._lines(self._stages(event))
            case TrialStarted():
                pass  # reported when it ends
            case PhaseStarted("diagnosis", detail, eta) | StepStarted(detail, eta):
                self.write(f"  {detail}{about_left(eta)}")
            case PhaseStarted(phase, detail):
                self.write(f"\n{phase}: {detail}")
            case TrialEnded():
                self._lines(self._trial(event))
            case RoundEnded(config, ratios, interval, disturbed=disturbed):
                line = round_line(ratios, interval, disturbed)
                self.write(f"{line}  {self._differences(config)}")
            case Answered():
                self._lines(answer_lines(event))
            case NothingFeasible():
                self._lines(nothing_lines(event))
            case _:
                self.write(remark_line(event))

    def _trial(self, event: TrialEnded) -> list[str]:
        trial, best = event.trial, event.best
        differs = self._differences(trial.config) if trial.number else "your settings"
        value, memory = rate_of(trial), trial.details.peak_memory_bytes
        columns = [
            f"{trial.number:4d}",
            f"{value:9.1f}/s" if value else f"{'-':>11}",
            gain_text(trial, event.baseline),
            f"{size(memory):>9}" if memory else f"{'-':>9}",
            differs,
        ]
        return [
            "  ".join([*columns, verdict_text(trial)]),
            f"      best so far: trial {best.number}, {gain_text(best, event.baseline).strip()}"
            f"   {span(event.elapsed_seconds)} gone{about_left(event.eta_seconds)}",
        ]

    def _stages(self, event: StagesTimed | StagesUnknown) -> list[str]:
        """Return lines on the stage that bounds training and on knobs left out."""
        if isinstance(event, StagesUnknown):
            return [f"\nno diagnosis, so everything is searched: {event.reason}"]
        assert self._context is not None
        space, known = event.space, self._context.space.notes
        notes = [f"  {note}" for note in space.notes if note not in known]
        left = [f"  {space.size} configurations are left"] if notes else []
        return [*stage_lines(event.diagnosis), *notes, *left]

    def _differences(self, config: TrainingConfig) -> str:
        assert self._context is not None
        return render(config.differences(self._context.baseline)) or "your settings"

    def _lines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)


def remark_line(
    event: CandidateRefused
    | CandidateSetAside
    | CostsMeasured
    | IncumbentRevoked
    | LeftOut
    | RoundVoid
    | TrialsEnded
    | Warned,
) -> str:
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
    return f"  ... {what or 'inspecting machine and file'}, {span(seconds)} so far"


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


def repair_lines(repaired: Repaired) -> list[str]:
    """Return lines on the result of a repair."""
    lines = [f"{repaired.database} was rebuilt from {repaired.trials} finished trials."]
    if repaired.backup is not None:
        lines.append(f"The old file is {repaired.backup}.")
    if repaired.set_aside:
        lines.append(f"{repaired.set_aside} unreadable lines were moved to results.jsonl.torn.")
    return lines


def stopped_lines(command: str, so_far: Path | None) -> list[str]:
    """Return lines that say how to continue a stopped search."""
    lines = ["", "Stopped. Finished trials are kept; the same command continues:", f"  {command}"]
    if so_far is not None:
        lines.append(f"The fastest trial so far, not confirmed: {so_far}")
    return lines


def plan_lines(context: SearchContext) -> list[str]:
    """Return the plan of a search: study, device, limits, space and budget."""
    options, space = context.options, context.space
    budget = f"{context.trials} trials"
    if context.time_budget_seconds is not None:
        budget += f" or {span(context.time_budget_seconds)}"
    return [
        f"study {options.study} in {options.folder}",
        f"device {context.machine.device} ({context.machine.device_name}), "
        f"{context.machine.host.usable_cores} cores, torch {context.machine.torch}",
        f"memory limit {size(context.memory_limit_bytes)}",
        *_script_lines(context),
        f"your settings: {render(context.baseline.as_dict())}",
        f"objective: {_objective_line(context)}",
        f"search space {options.space}: {space.size} configurations",
        *(f"  {name}: {', '.join(map(spelled, v))}" for name, v in space.varied().items()),
        *(f"  note: {note}" for note in space.notes),
        f"budget: {budget}",
    ]


def _script_lines(context: SearchContext) -> list[str]:
    """Return lines on the observed training of the unchanged script."""
    seen = context.observed
    if seen is None:
        return []
    return [
        f"{context.options.model_path} is run as a training script: each trial runs it from its "
        "start into its training",
        *(f"DataLoader {n}{' feeds training' * (n == seen.training_loader)}" for n in seen.loaders),
        f"{seen.steps_per_second:.4g} steps/s, {seen.samples_per_second:.4g} samples/s, "
        f"waiting for data {100 * seen.wait_share:.2g} % of the time",
        *(f"{name}: {why}" for name, why in seen.fixed.items()),
    ]


def stage_lines(diagnosis: Diagnosis) -> list[str]:
    """Return the samples/s of each stage alone, and the stage that bounds training."""
    limits = diagnosis.limits()
    width = max(map(len, limits))
    waits = "" if diagnosis.doubt else f"your settings wait for {diagnosis.bound}; "
    return [
        f"\ndiagnosis: {waits}each stage alone would reach",
        *(f"  {name:<{width}}  {rate:10.1f}/s" for name, rate in limits.items()),
    ]


def round_line(ratios: Sequence[float], interval: Interval, disturbed: int | None = None) -> str:
    """Return the line on the last round, with the interval over all rounds."""
    low, high = interval
    count = f", {disturbed} disturbed" if disturbed else ""
    return f"  round {len(ratios)}  {ratios[-1]:.3f}x  (so far {low:.3f} to {high:.3f}{count})"


def void_line(number: int, disturbance: str) -> str:
    """Return the line on a round that does not count, with its reason."""
    return f"  round {number} void: {disturbance}; repeated"


def _objective_line(context: SearchContext) -> str:
    samples = context.objective.run_samples
    if samples is None:
        return "samples/s of the steady state"
    return f"time of a run of {samples} samples, start and compilation included"


def rate_of(trial: FinishedTrial) -> float | None:
    """Return the samples per second of a trial; None if it was not timed."""
    return trial.details.samples_per_second


def verdict_text(trial: FinishedTrial) -> str:
    """Return the verdict on a trial, with remarks on its timing."""
    if not trial.verdict.feasible:
        return f"infeasible: {trial.verdict.reason}"
    notes = ["stopped early, clearly slower"] if "raced" in (trial.details.flags or ()) else ["ok"]
    return ", ".join([*notes, *conditions(trial.details)])


def gain_text(trial: FinishedTrial, baseline: FinishedTrial) -> str:
    """Return the ratio of a trial's value to the baseline's, six characters wide."""
    value, reference = trial.verdict.value, baseline.verdict.value
    return f"{value / reference:5.2f}x" if value and reference else f"{'-':>6}"
