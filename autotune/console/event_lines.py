"""Render a search's events as lines, for plain output and for a terminal alike."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.configuration.search_space import SearchSpace
from autotune.configuration.training_config import TrainingConfig, render
from autotune.console.plan_lines import plan_lines
from autotune.context.search_context import SearchContext
from autotune.searching.run import events
from autotune.searching.run.diagnosis import Diagnosis, limits_of
from autotune.searching.trials.drift import conditions
from autotune.study.finished import FinishedTrial
from autotune.values.measurement import STOPPED_EARLY
from autotune.values.statistics import Interval
from autotune.values.text import size, span


class EventLines:
    """Renders the events of one search, in their order."""

    def __init__(self) -> None:
        self.context: SearchContext | None = None
        """Context of the search; None before it is known."""
        self.doing = ""
        """The current step, in a few words."""
        self._timed: TrainingConfig | None = None
        """Settings of the last round, which those that follow do not repeat."""

    def of(self, event: events.Event) -> list[str]:
        """Return the lines of the next event; of a trial's two, the second is the state so far."""
        self._note(event)
        match event:
            case events.Planned(context, finished_before):
                before = [f"continuing after {finished_before} finished trials"]
                return plan_lines(context) + before * (finished_before > 0)
            case events.StagesTimed(diagnosis, space):
                return self._stages(diagnosis, space)
            case events.TrialStarted() | events.Answered() | events.NothingFeasible():
                return []  # shown when it ends; the result follows on stdout
            case events.PhaseStarted("diagnosis", detail) | events.StepStarted(detail):
                return [f"  {detail}"]
            case events.PhaseStarted(phase, detail):
                return [f"\n{phase}: {detail}"]
            case events.TrialEnded(trial, baseline, best, elapsed_seconds, eta):
                left = "" if eta is None else f", about {span(eta)} left"
                return [
                    self._trial_line(trial, baseline),
                    f"      best so far: trial {best.number}, {gain_text(best, baseline).strip()}"
                    f"   {span(elapsed_seconds)} elapsed{left}",
                ]
            case events.RoundEnded(config, ratios, interval, disturbed=disturbed):
                whose = "" if config == self._timed else f"  {self.differences(config)}"
                self._timed = config
                return [round_line(ratios, interval, disturbed) + whose]
            case _:
                return [_remark(event)]

    def differences(self, config: TrainingConfig) -> str:
        """Return the settings that differ from the user's, as text."""
        assert self.context is not None
        return render(config.differences(self.context.baseline)) or "your settings"

    def _note(self, event: events.Event) -> None:
        """Note what is searched, and the step that begins with an event."""
        match event:
            case events.Planned(context):
                self.context = context
            case events.PhaseStarted(phase):
                self.doing = phase
            case events.StepStarted(detail):
                self.doing = detail
            case events.TrialStarted(number, config):
                self.doing = f"trial {number}: {self.differences(config)}"
            case events.TrialEnded():
                self.doing = "choosing the next trial"

    def _trial_line(self, trial: FinishedTrial, baseline: FinishedTrial) -> str:
        settings = self.differences(trial.config)
        rate, memory = trial.details.samples_per_second, trial.details.peak_memory_bytes
        columns = [f"{trial.number:4d}", f"{rate:9.1f}/s" if rate else f"{'-':>11}"]
        own, run = baseline.details.measurement, trial.details.measurement
        if own is not None and own.token_count is not None:
            tokens = None if run is None else run.tokens_per_second
            columns.append(f"{tokens:9.0f} tokens/s" if tokens else f"{'-':>18}")
        gain = gain_text(trial, baseline)
        columns += [gain, f"{size(memory) if memory else '-':>9}", settings, verdict_text(trial)]
        return "  ".join(columns)

    def _stages(self, diagnosis: Diagnosis, space: SearchSpace) -> list[str]:
        """Return lines on the bottleneck and on knobs left out."""
        assert self.context is not None
        known = self.context.space.notes
        notes = [f"  {note}" for note in space.notes if note not in known]
        left = [f"  {space.size} configurations remain"] if notes else []
        return [*stage_lines(diagnosis), *notes, *left]


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
        percent = 100 * exchange / diagnosis.stages.compute_seconds
        lines.append(f"The gradient all-reduce takes {percent:.2g} % of a step.")
    return lines


def round_line(ratios: Sequence[float], interval: Interval, disturbed: int | None = None) -> str:
    """Return the line on the last round, with the interval over all rounds."""
    low, high = interval
    count = f", {disturbed} disturbed" if disturbed else ""
    return f"  round {len(ratios)}  {ratios[-1]:.3f}x  (so far {low:.3f} to {high:.3f}{count})"


def void_line(number: int, disturbance: str) -> str:
    """Return the line on a round that does not count, with its reason."""
    return f"  round {number} discarded ({disturbance}), rerunning"


def verdict_text(trial: FinishedTrial) -> str:
    """Return the verdict on a trial, with remarks on its timing."""
    if not trial.verdict.feasible:
        return f"infeasible: {trial.verdict.reason}"
    run = trial.details.measurement
    stopped = run is not None and STOPPED_EARLY in run.flags
    return ", ".join(
        ["stopped early, clearly slower" if stopped else "ok", *conditions(trial.details)]
    )


def gain_text(trial: FinishedTrial, baseline: FinishedTrial) -> str:
    """Return the speed-up of a trial over the baseline, six characters wide."""
    value, reference = trial.verdict.value, baseline.verdict.value
    return f"{value / reference:5.2f}x" if value and reference else f"{'-':>6}"


def _remark(event: events.Event) -> str:
    """Return the line of an event that takes one."""
    match event:
        case events.CandidateRefused(trial, reason):
            return f"  trial {trial.number} not confirmed: {reason}"
        case events.CandidateSetAside(trial, other):
            return f"  confirming trial {other.number} instead of trial {trial.number}"
        case events.Noted(text):
            return f"  {text}"
        case events.RoundVoid(number, disturbance):
            return void_line(number, disturbance)
        case events.TrialsEnded(reason):
            return f"stopping trials: {reason}"
        case events.Warned(warning):
            return f"warning: {warning}"
    raise AssertionError(f"no line for {event}")
