"""What a person reads while a search runs and when it ends: plain lines on stderr.

On a terminal `autotune.live` draws the same as a table. The result for programs is one JSON object
on stdout, on request.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, assert_never

from autotune.best import NOT_MEASURED, AccuracyEvidence
from autotune.config import TrainingConfig, render
from autotune.intervals import Interval
from autotune.knobs.base import spelled
from autotune.outcome import Measured
from autotune.text import about_left, clean, size, span
from autotune.tuning.diagnosis import Diagnosis
from autotune.tuning.drift import conditions
from autotune.tuning.events import (
    Answered,
    CandidateRefused,
    CandidateSetAside,
    Event,
    LeadLost,
    LeftOut,
    NothingFeasible,
    PhaseStarted,
    Planned,
    RoundEnded,
    StagesTimed,
    StagesUnknown,
    StepStarted,
    TrialEnded,
    TrialsEnded,
    TrialStarted,
    Warned,
)
from autotune.tuning.running.record import Recorded
from autotune.tuning.scene import Scene
from autotune.tuning.storing.repair import Repaired
from autotune.tuning.storing.study import FinishedTrial

SCHEMA_VERSION = 1

Write = Callable[[str], None]


def to_stderr(line: str) -> None:
    """One line for people, without control characters that came from elsewhere."""
    sys.stderr.write(clean(line) + "\n")
    sys.stderr.flush()


@dataclass
class PlainProgress:
    """Says each event in a line or two."""

    write: Write = to_stderr
    _scene: Scene | None = field(default=None, init=False)

    def show(self, event: Event) -> None:
        """Say what happened."""
        match event:
            case Planned(scene, finished_before):
                self._scene = scene
                self._lines(plan_lines(scene))
                if finished_before:
                    self.write(f"continues after {finished_before} finished trials")
            case StagesTimed() | StagesUnknown():
                self._lines(self._stages(event))
            case TrialStarted():
                pass  # told when it is over
            case PhaseStarted("diagnosis", detail, eta) | StepStarted(detail, eta):
                self.write(f"  {detail}{about_left(eta)}")
            case PhaseStarted(phase, detail):
                self.write(f"\n{phase}: {detail}")
            case TrialEnded():
                self._lines(self._trial(event))
            case RoundEnded(config, ratios, interval):
                self.write(f"{round_line(ratios, interval)}  {self._differences(config)}")
            case Answered():
                self._lines(answer_lines(event))
            case NothingFeasible():
                self._lines(nothing_lines(event))
            case _:
                self.write(remark_line(event))

    def _trial(self, event: TrialEnded) -> list[str]:
        trial, best = event.trial, event.best
        differs = self._differences(trial.config) if trial.number else "your settings"
        value, memory = rate_of(trial), trial.details.get("peak_memory_bytes")
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
        """What bounds training and need not be searched, and why."""
        if isinstance(event, StagesUnknown):
            return [f"\nno diagnosis, so everything is searched: {event.reason}"]
        assert self._scene is not None
        space, known = event.space, self._scene.space.notes
        notes = [f"  {note}" for note in space.notes if note not in known]
        left = [f"  {space.size} configurations are left"] if notes else []
        return [*stage_lines(event.diagnosis), *notes, *left]

    def _differences(self, config: TrainingConfig) -> str:
        assert self._scene is not None
        return render(config.differences(self._scene.baseline)) or "your settings"

    def _lines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)


def remark_line(
    event: CandidateRefused | CandidateSetAside | LeadLost | LeftOut | TrialsEnded | Warned,
) -> str:
    """What takes one line."""
    match event:
        case CandidateRefused(trial, reason):
            return f"  trial {trial.number} does not hold: {reason}"
        case CandidateSetAside(trial, other):
            return f"  trial {trial.number} is set aside for trial {other.number}"
        case LeadLost(trial, reason, best):
            leader = f"trial {best.number}" if best.number else "your settings"
            return f"  trial {trial.number} leads no longer, {leader} does: {reason}"
        case LeftOut(note):
            return f"  left out: {note}"
        case TrialsEnded(reason):
            return f"no further trial: {reason}"
        case Warned(warning):
            return f"warning: {warning}"
        case _:
            assert_never(event)


def repair_lines(repaired: Repaired) -> list[str]:
    """What became of a study's database and journal."""
    lines = [f"{repaired.database} was made anew from {repaired.trials} finished trials."]
    if repaired.backup is not None:
        lines.append(f"The old file is {repaired.backup}.")
    if repaired.set_aside:
        lines.append(f"{repaired.set_aside} lines were not readable; results.jsonl.torn has them.")
    return lines


def stopped_lines(command: str, so_far: Path | None) -> list[str]:
    """How a search that was stopped goes on."""
    lines = ["", "Stopped. Finished trials are kept; the same command continues:", f"  {command}"]
    if so_far is not None:
        lines.append(f"The fastest trial so far, not confirmed: {so_far}")
    return lines


def plan_lines(scene: Scene) -> list[str]:
    """What will be searched, where, and within which limits."""
    options, space = scene.options, scene.space
    budget = f"{scene.trials} trials"
    if scene.time_budget_seconds is not None:
        budget += f" or {span(scene.time_budget_seconds)}"
    return [
        f"study {options.study} in {options.folder}",
        f"device {scene.machine.device} ({scene.machine.device_name}), "
        f"{scene.machine.host.usable_cores} cores, torch {scene.machine.torch}",
        f"memory limit {size(scene.memory_limit_bytes)}",
        *_script_lines(scene),
        f"your settings: {render(scene.baseline.as_dict())}",
        f"objective: {_objective_line(scene)}",
        f"search space {options.space}: {space.size} configurations",
        *(f"  {name}: {', '.join(map(spelled, v))}" for name, v in space.varied().items()),
        *(f"  note: {note}" for note in space.notes),
        f"budget: {budget}",
    ]


def _script_lines(scene: Scene) -> list[str]:
    """What a script was seen to do untouched."""
    seen = scene.observed
    if seen is None:
        return []
    return [
        f"{scene.options.model_path} is run as a training script, up to and into its training, "
        "whatever it does before that",
        *(f"DataLoader {n}{' feeds training' * (n == seen.training_loader)}" for n in seen.loaders),
        f"{seen.steps_per_second:.4g} steps/s, {seen.samples_per_second:.4g} samples/s, "
        f"waiting for data {100 * seen.wait_share:.2g} % of the time",
        *(f"{name}: {why}" for name, why in seen.fixed.items()),
    ]


def stage_lines(diagnosis: Diagnosis) -> list[str]:
    """What each stage of training could do if it were the only one, and which one bounds it."""
    limits = diagnosis.limits()
    width = max(map(len, limits))
    waits = "" if diagnosis.doubt else f"your settings wait for {diagnosis.bound}; "
    return [
        f"\ndiagnosis: {waits}each stage alone would reach",
        *(f"  {name:<{width}}  {rate:10.1f}/s" for name, rate in limits.items()),
    ]


def answer_lines(event: Answered) -> list[str]:
    """The answer in a few lines."""
    best, evidence = event.best, event.best.evidence
    if best.keeps_baseline:
        headline = "Keep your settings: nothing was faster beyond the noise."
    else:
        low, high = evidence.speedup.ci95
        changed = best.training_config.differences(TrainingConfig.of(evidence.baseline.config))
        headline = (
            f"{evidence.speedup.ratio:.2f}x faster than your settings "
            f"({low:.2f} to {high:.2f}, {evidence.speedup.rounds} rounds): {render(changed)}"
        )
    accuracy, memory = best.constraints.accuracy, best.constraints.memory
    lines = [
        "",
        headline,
        f"  throughput  {evidence.baseline.samples_per_second:g} -> "
        f"{evidence.best.samples_per_second:g} samples/s",
        f"  memory      {size(memory.peak_bytes)} of {size(memory.limit_bytes)}",
        accuracy_line(accuracy),
    ]
    if run := evidence.predicted_run:
        lines.append(
            f"  run         of {run.samples} samples, predicted: {span(run.baseline_seconds)} -> "
            f"{span(run.best_seconds)}"
        )
    if accuracy.needs_full_run:
        lines.append("  The batch size changed: check one full training before you rely on it.")
    return [*lines, f"  written to  {event.path}"]


def nothing_lines(event: NothingFeasible) -> list[str]:
    """Why there is no answer, each reason with its count."""
    reasons = [f"  {count} x {reason}" for reason, count in event.reasons.items()]
    return ["\nNothing feasible, no file is written:", *reasons]


def accuracy_line(accuracy: AccuracyEvidence) -> str:
    """What became of the quality."""
    if not accuracy.is_measured:
        return f"  quality     {NOT_MEASURED}"
    return (
        f"  {accuracy.metric:<11} {accuracy.baseline:g} -> {accuracy.best:g} "
        f"(allowed difference {accuracy.tolerance:g}, {accuracy.seeds} seeds)"
    )


def result(event: Answered | NothingFeasible) -> str:
    """The end of a search as one JSON object for programs."""
    if isinstance(event, NothingFeasible):
        data: dict[str, Any] = {"answer": "none", "reasons": event.reasons}
    else:
        answer = "keep" if event.best.keeps_baseline else "faster"
        data = {
            "answer": answer,
            "path": str(event.path),
            "best": event.best.model_dump(mode="json"),
        }
    return json.dumps({"schema_version": SCHEMA_VERSION, **data})


def round_line(ratios: Sequence[float], interval: Interval) -> str:
    """The last round of a duel, and what all of them say."""
    low, high = interval
    return f"  round {len(ratios)}  {ratios[-1]:.3f}x  (so far {low:.3f} to {high:.3f})"


def recorded_line(recorded: Recorded, seconds_left: float) -> str:
    """One more answer of a table."""
    answer = recorded.answer
    run = answer.outcome
    found = f"{run.measurement.samples_per_second:.1f}/s" if isinstance(run, Measured) else run.kind
    return (
        f"{recorded.done:5d} of {recorded.total}  {answer.task.kind:<8} {found:>14}  "
        f"{answer.seconds:5.1f} s  about {span(seconds_left)} left"
    )


def _objective_line(scene: Scene) -> str:
    samples = scene.objective.run_samples
    if samples is None:
        return "samples/s of the steady state"
    return f"time of a run of {samples} samples, start and compilation included"


def rate_of(trial: FinishedTrial) -> float | None:
    """Samples per second, where it ran."""
    return trial.details.get("samples_per_second")


def verdict_text(trial: FinishedTrial) -> str:
    """What became of a trial, with what has to be known of its number."""
    if not trial.verdict.feasible:
        return f"infeasible: {trial.verdict.reason}"
    notes = ["given up, clearly slower"] if "raced" in trial.details.get("flags", ()) else ["ok"]
    return ", ".join([*notes, *conditions(trial.details)])


def gain_text(trial: FinishedTrial, baseline: FinishedTrial) -> str:
    """Its value over the baseline's, six characters wide."""
    value, reference = trial.verdict.value, baseline.verdict.value
    return f"{value / reference:5.2f}x" if value and reference else f"{'-':>6}"
