"""The result of a search: schema, reading and writing of best.yaml, and the result in words.

Every output has the same words: a headline, and facts with a name each.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError

from autotune.configuration import evidence as parts
from autotune.configuration.constraints import inconclusive
from autotune.configuration.training_config import TrainingConfig, render, setting_faults
from autotune.knobs import knob_named
from autotune.knobs.base import Effect, Value, spelled
from autotune.knobs.own import own_knob
from autotune.process.common.trial_folder import write_atomically
from autotune.values.errors import UsageError
from autotune.values.strict_yaml import Document, dump, read
from autotune.values.text import clean, rounds_text, span

FORMAT = 1
"""Format of best.yaml."""
Fact = tuple[str, str]
"""Name of what was measured, and the text on it."""


class Throughput(parts.Part):
    """Mean samples per second, with its 95 % confidence interval."""

    samples_per_second: float
    ci95: parts.Pair
    joules_per_sample: float | None = None
    """Energy of a sample; None if nothing measures it."""
    steps: parts.Steps | None = None


class Baseline(parts.Part):
    """The user's settings and their throughput."""

    config: parts.Settings
    samples_per_second: float
    ci95: parts.Pair
    joules_per_sample: float | None = None
    steps: parts.Steps | None = None
    phases: parts.Phases | None = None


class Speedup(parts.Part):
    """Speed-up of the result over the baseline, from alternating fresh processes."""

    ratio: float
    ci95: parts.Pair
    rounds: int
    """Rounds behind ratio and interval; if the settings are kept, those that candidates lost."""
    disturbed_rounds: int | None = None
    """Rounds that count although other programs, the host or the GPU disturbed them.

    If the settings are kept: only the disturbed rounds that speak against the candidates. None
    without rounds, and if unknown.
    """
    repeated_rounds: int | None = None
    """Disturbed rounds that were discarded and repeated."""


class Evidence(parts.Part):
    """Measurements of the best configuration and of the baseline."""

    objective: str
    unit: Literal["steps"] | None = None
    """Set if a script's samples are unknown: each of its steps counts as one sample."""
    baseline: Baseline
    changed: parts.Settings | None = None
    """Settings of the result that differ from the baseline's, as they were measured; None if that
    is not known. `config` has others if it was edited since."""
    best: Throughput
    speedup: Speedup
    gains: tuple[parts.Gain, ...] | None = None
    """Gains of settings of the result, as far as rounds without them show these, the largest first;
    None without any."""
    taken_back: parts.Gain | None = None
    """Settings that the result lacks because they did not pay beyond the noise."""
    not_tried_without: tuple[str, ...] | None = None
    """Settings of the result without which it was not timed, or could not be."""
    compile_seconds: float
    """One-time seconds of compiling."""
    break_even_samples: int | None = None
    """Samples after which the speed-up has paid for the one-time cost; not for a time to a loss."""
    predicted_run: parts.PredictedRun | None = None
    """Set if the objective is the time of a run; `speedup` is then the speed-up of that time."""
    time_to_loss: parts.TimeToLoss | None = None
    """Set if the time to a loss is the objective; `speedup` is then the speed-up of that time."""
    blocks: parts.Blocks | None = None
    searched: parts.Searched | None = None
    """Measured part of the search space; None if it is not known."""
    not_proven: tuple[parts.NotProven, ...] = ()
    """Faster trials whose quality is inconclusive, the fastest first."""
    not_confirmed: tuple[parts.NotConfirmed, ...] = ()
    """Trials that were faster than the result and could not be tested or timed again."""
    arithmetic: parts.Arithmetic | None = None
    """None for a script, and if the FLOPs of a step could not be counted."""
    not_read_back: tuple[str, ...] | None = None
    """Changed environment variables that nothing is known to read; None without any."""

    @property
    def counted(self) -> str:
        """Return what the throughput counts: samples, or steps where samples are unknown."""
        return self.unit or "samples"

    @property
    def rate_unit(self) -> str:
        """Return the unit of the throughput."""
        return f"{self.counted}/s"

    @property
    def joules_per_sample(self) -> parts.Pair | None:
        """Return the energy of a sample under the baseline and the best; None if not told."""
        own, best = self.baseline.joules_per_sample, self.best.joules_per_sample
        return None if own is None or best is None else (own, best)


class ConstraintEvidence(parts.Part):
    """All constraints that the configuration satisfies."""

    memory: parts.MemoryEvidence
    accuracy: parts.AccuracyEvidence


class Provenance(parts.Part):
    """The study and the trial that the result comes from."""

    study: str
    storage: str
    trial: int
    """Number of the trial in the study; 0 is the baseline."""
    model: str
    model_sha256: str
    imports: dict[str, str] | None = None
    """Eight hex digits of each file of yours that it imported, by its path from the directory of
    `model`; None for no such file."""
    maps: tuple[str, ...] | None = None
    """Ways in which the script took settings, as `--map` spells them; None for a model.py."""
    arguments_sha256: str | None = None
    """Digest of a script's arguments, except length, seed and paths; None for a model.py."""
    arguments: dict[str, str] | None = None
    """Four hex digits of each, to name those that differ; "" stands for positional ones."""
    autotune: str
    created: str


class BestConfig(parts.Part):
    """The content of best.yaml."""

    autotune: Literal[1] = 1
    config: parts.Settings
    effects: dict[str, Effect] | None = None
    """Effect of each of the user's own settings in this file; None if it has none."""
    evidence: Evidence
    constraints: ConstraintEvidence
    lr_scaling: parts.LearningRate = parts.LearningRate()
    processes: Annotated[int, Field(ge=2)] | None = None
    """Processes that trained together, each with batches of batch_size; None: one process."""
    machine: parts.MachineRecord
    provenance: Provenance

    def with_effects(self, effects: Mapping[str, Effect]) -> Self:
        """Return the file with the effects of the user's own knobs that it sets."""
        if not (own := self.own_knobs):
            return self
        found: dict[str, Effect] = {name: effects.get(name, "numerics") for name in own}
        return self.model_copy(update={"effects": found})

    @property
    def own_knobs(self) -> tuple[str, ...]:
        """Return the names of the user's own knobs that the answer or the baseline sets."""
        names = dict.fromkeys((*self.config, *self.evidence.baseline.config))
        return tuple(name for name in names if own_knob(name))

    def effect(self, name: str) -> Effect:
        """Return the effect of a knob on the trained model."""
        return (self.effects or {}).get(name, knob_named(name).effect)

    @property
    def keeps_baseline(self) -> bool:
        """Return True if the result is "keep your settings"."""
        return self.config == self.evidence.baseline.config

    @property
    def edits(self) -> dict[str, tuple[Value, Value]]:
        """Return measured and present value of each setting that was edited in the file since."""
        measured = self.as_measured().training_config
        now = self.training_config.differences(measured)
        return {name: (measured[name], value) for name, value in now.items()}

    def as_measured(self) -> Self:
        """Return the file with the settings that were measured, in the place of edited ones."""
        if self.evidence.changed is None:
            return self
        measured = {**self.evidence.baseline.config, **self.evidence.changed}
        return self.model_copy(update={"config": TrainingConfig.of(measured).as_dict()})

    @property
    def changed(self) -> dict[str, Value]:
        """Return the settings that differ from the user's."""
        return self.training_config.differences(TrainingConfig.of(self.evidence.baseline.config))

    @property
    def judged_numerics(self) -> bool:
        """Return True if a quality of the measured script covers changes of rounding."""
        return self.constraints.accuracy.compared_by is not None

    @property
    def maps(self) -> tuple[str, ...]:
        """Return the maps of the search for the settings that it changed."""
        known = ((text.partition("=")[0], text) for text in self.provenance.maps or ())
        return tuple(text for left, text in known if left.partition(":")[0] in self.changed)

    @property
    def measured_in(self) -> str:
        """Return what both throughputs were measured in: without candidates there are no rounds."""
        return "in the confirmation" if self.evidence.speedup.rounds else "in the search"

    @property
    def energy_of(self) -> str:
        """Return whose energy that of a sample is, in words."""
        return "the CPU packages" if self.machine.device == "cpu" else "the GPU"

    @property
    def training_config(self) -> TrainingConfig:
        """Return the configuration, with every knob set."""
        return TrainingConfig.of(self.config)


def write_best(best: BestConfig, path: Path, title: str = "") -> None:
    """Write best.yaml atomically, below a comment with its title, if one is given.

    Raises:
        OSError: no space or no permission; an existing file stays unchanged.
    """
    comment = "".join(f"# {line}\n" for line in clean(title).splitlines())
    write_atomically(path, comment + dump(best.model_dump(mode="json")))


def read_best(path: Path) -> BestConfig:
    """Read best.yaml and check it against the schema.

    Raises:
        UsageError: the file is missing, not valid (all faults), unconfirmed, or of another format.
    """
    document = read(path)
    if document.value.get("unconfirmed"):
        raise UsageError(
            f"{document.position('unconfirmed')}: this is the fastest trial of a search that has "
            "not ended, and was never confirmed. Let the search finish, and use its best.yaml."
        )
    version, where = document.value.get("autotune"), document.position("autotune")
    if version != FORMAT:
        raise UsageError(
            f"{where}: autotune: {version!r} is not the format that this version reads, {FORMAT}. "
            "Name a best.yaml, or upgrade autotune."
        )
    try:
        best = BestConfig.model_validate_json(json.dumps(document.value))
    except ValidationError as error:
        config = document.value.get("config")
        wrong = _config_faults(config, document, "config") if isinstance(config, dict) else []
        raise UsageError("\n".join([*_schema_faults(error, document), *wrong])) from None
    faults = [
        *_config_faults(best.config, document, "config"),
        *_config_faults(best.evidence.baseline.config, document, "evidence", "baseline", "config"),
        *_faults_at(setting_faults(best.evidence.changed or {}), document, "evidence", "changed"),
    ]
    if faults:
        raise UsageError("\n".join(faults))
    return best


def _schema_faults(error: ValidationError, document: Document) -> list[str]:
    faults = []
    for fault in error.errors():
        place = fault["loc"]
        name = ".".join(map(str, place))
        if fault["type"] == "extra_forbidden":
            faults.append(f"{document.key_position(*place)}: {name} is not known. Remove it.")
        else:
            faults.append(f"{document.position(*place)}: {name}: {fault['msg']}.")
    return faults


def _config_faults(config: parts.Settings, document: Document, *place: str) -> list[str]:
    faults = setting_faults(config)
    whole = {} if faults else TrainingConfig.of(config).as_dict()
    for name, value in whole.items():
        if name in config and config[name] != value:
            faults[name] = (
                f"{name}={spelled(config[name])} contradicts the other settings, with which it "
                f"must be {spelled(value)}."
            )
    return _faults_at(faults, document, *place)


def _faults_at(faults: Mapping[str, str], document: Document, *place: str) -> list[str]:
    return [f"{document.position(*place, name)}: {fault}" for name, fault in faults.items()]


def headline(best: BestConfig) -> str:
    """Return the result in one sentence: the confirmed speed-up, or why to keep the settings."""
    if best.keeps_baseline:
        reason = keep_reason(best.evidence)
        return f"Keep your settings: {reason[0].lower()}{reason[1:]}"
    speedup, (low, high) = best.evidence.speedup, best.evidence.speedup.ci95
    rounds = rounds_text(speedup.rounds, speedup.disturbed_rounds)
    faster = "faster" if best.evidence.time_to_loss is None else "faster to the loss"
    return (
        f"{speedup.ratio:.2f}x {faster} than your settings ({low:.2f} to {high:.2f}, {rounds}): "
        f"{render(best.changed)}"
    )


def facts(best: BestConfig) -> Iterator[Fact]:
    """Yield what was measured of a result, and what to check."""
    evidence = best.evidence
    disturbed, rounds = evidence.speedup.disturbed_rounds or 0, evidence.speedup.rounds
    if disturbed > rounds / 2:
        yield "busy", "other programs disturbed most rounds: search again on an idle machine"
    yield from _rates(best)
    if (used := evidence.arithmetic) is not None and used.mfu is not None:
        percent = Decimal(f"{100 * used.mfu:.2g}")
        rate = f"the matrix multiplication rate measured here in {used.number_format}"
        yield "arithmetic", f"{percent:f} % of {rate}"
    if best.processes is not None:
        yield "processes", _processes_text(best, best.processes)
    yield "memory", best.constraints.memory.in_words
    yield from _quality(best)
    if best.training_config["deterministic"]:
        yield "mode", "torch's deterministic mode, when measured and when applied"
    if run := evidence.predicted_run:
        spans = f"{span(run.baseline_seconds)} -> {span(run.best_seconds)}"
        yield "run", f"{spans} for {run.samples} {evidence.counted} (predicted)"
    if (text := _learning_rate_text(best)) is not None:
        yield "lr", text
    if best.constraints.accuracy.needs_full_run:
        yield "check", f"one full training before you rely on it: {_course_changes(best)} changed"
    yield from _open_facts(best)
    if evidence.not_proven:
        ways = ["--accuracy-tolerance allows a larger difference"]
        if best.constraints.accuracy.metric == "evaluate":
            ways.append("evaluate() is less noisy on more data")
        yield "to decide", ", ".join(ways)


def _rates(best: BestConfig) -> Iterator[Fact]:
    """Yield facts on the throughput of both settings, and on what follows from it."""
    evidence = best.evidence
    own, new, steps = evidence.baseline, evidence.best, evidence.baseline.steps
    rates = _change(best, own.samples_per_second, new.samples_per_second)
    yield "throughput", f"{rates} {evidence.rate_unit} {best.measured_in}"
    yield from _gains(evidence)
    if evidence.time_to_loss is not None:
        yield "to the loss", evidence.time_to_loss.in_words(evidence.counted)
    if steps is not None and steps.remark is not None:
        yield "your steps", steps.remark
    if (joules := evidence.joules_per_sample) is not None:
        yield "energy", f"{_change(best, *joules)} J per sample ({best.energy_of})"


def _change(best: BestConfig, own: float, new: float) -> str:
    """Return what was measured of both settings, or of the user's alone if these are kept."""
    return f"{own:g}" if best.keeps_baseline else f"{own:g} -> {new:g}"


def _gains(evidence: Evidence) -> Iterator[Fact]:
    """Yield facts on what the settings of a result give, and on those that were taken back."""
    if evidence.gains:
        yield "each gives", "; ".join(map(gain_text, evidence.gains))
    if evidence.taken_back is not None:
        yield "left out", f"{gain_text(evidence.taken_back)}, not beyond the noise"
    if evidence.not_tried_without:
        left = ", ".join(evidence.not_tried_without)
        yield "together", f"the result was not timed without {left}"


def gain_text(gain: parts.Gain) -> str:
    """Return settings, and the speed-up that they give with its interval."""
    return f"{render(gain.settings)} {gain.ratio:.2f}x ({gain.ci95[0]:.2f} to {gain.ci95[1]:.2f})"


def _quality(best: BestConfig) -> Iterator[Fact]:
    """Yield facts on the quality of the baseline and of the result, and on its probes."""
    accuracy = best.constraints.accuracy
    if not accuracy.is_measured:
        yield "quality", accuracy.not_measured_text
        return
    if accuracy.compared_by:
        yield "metric", accuracy.compared_by
    if best.keeps_baseline:
        yield "quality", f"{accuracy.metric} {accuracy.baseline:g}"
        return
    values = f"{accuracy.metric} {accuracy.baseline:g} -> {accuracy.best:g}"
    yield "quality", f"{values}, {accuracy.difference_text or f'{accuracy.seeds} seeds'}"
    yield "allowed", accuracy.allowed_text
    if accuracy.split_text:
        yield "gradients", accuracy.split_text
    if accuracy.probe_text:
        yield "trainings", accuracy.probe_text


def searched_facts(searched: parts.Searched | None, changed: Mapping[str, Value]) -> Iterator[Fact]:
    """Yield facts on the measured part of the search space; none if it is not known.

    `changed` are the settings of the result that differ from the user's.
    """
    if searched is None:
        return
    values = (f"{name} {', '.join(map(spelled, tried))}" for name, tried in searched.tried.items())
    measured = f"{searched.measured} of {searched.configurations} configurations"
    yield "searched", f"{measured}: {'; '.join(values) or 'only your settings'}"
    if searched.failed:
        yield "failed", f"{searched.failed} more"
    # What only workers use, such as prefetch_factor, may have had one value wherever it was used.
    fixed = [
        f"{name} (always {spelled(changed[name])} where it was used)" if name in changed else name
        for name in searched.never_varied
    ]
    if fixed:
        yield "not tried", "other values of " + ", ".join(fixed)


def fact_lines(found: Iterable[Fact]) -> list[str]:
    """Return facts as lines of two columns."""
    return [f"  {name:<11} {text}" for name, text in found]


def explained(best: BestConfig) -> str:
    """Return the result in lines: headline, facts, and what was edited in the file since."""
    measured = best.as_measured()
    found = [*facts(measured), *searched_facts(measured.evidence.searched, measured.changed)]
    found += [("edited", f"since the search: {text}") for text in edited(best)]
    return "\n".join([headline(measured), *fact_lines(found)])


def edited(best: BestConfig) -> list[str]:
    """Return the settings that were edited in the file after the search, one line each."""
    found = [
        f"{name}: {spelled(measured)} was measured, {spelled(now)} is in the file"
        for name, (measured, now) in best.edits.items()
    ]
    factor, samples = best.lr_scaling.factor, best.as_measured().training_config.effective_batch
    if factor != 1 and best.training_config.effective_batch != samples:
        found.append(f"learning rate: the factor {factor:g} belongs to {samples} samples a step")
    return found


def keep_reason(evidence: Evidence) -> str:
    """Return why the user's settings are kept, to stand below such a headline.

    It names the configurations measured, and how many faster ones are not proven to train as well
    or could not be confirmed.
    """
    searched = evidence.searched
    count, failed = len(evidence.not_proven), len(evidence.not_confirmed)
    found = "was shown to be faster" if failed else "was faster beyond the noise"
    found = "that trains as well was shown to be faster" if count else found
    if searched is None:
        reason = f"Nothing {found}."
    elif not searched.measured:
        reason = "No other configuration was measured."
    else:
        plural = "" if searched.measured == 1 else "s"
        reason = f"Of {searched.measured} configuration{plural} measured, none {found}."
    if disturbed := evidence.speedup.disturbed_rounds:
        reason += f" {disturbed} of the rounds that show this were disturbed."
    if count:
        faster = "1 faster one is" if count == 1 else f"{count} faster ones are"
        reason += f" {faster} not proven to train as well."
    if failed:
        was = "was" if failed == 1 else "were"
        reason += f" {failed} that {was} faster in the trials could not be confirmed."
    return reason


def _course_changes(best: BestConfig) -> str:
    """Return the names of changed settings that change the course of training."""
    names = [name for name in best.changed if best.effect(name) == "statistics"]
    words = ["the batch size" if name == "batch_size" else name for name in names]
    return " and ".join(words) or "the batch size"


def _processes_text(best: BestConfig, count: int) -> str:
    """Return how many processes trained together, and on how many samples a step."""
    config = best.training_config
    size, steps = config["batch_size"], int(config["accumulation_steps"] or 1)
    accumulated = "" if steps == 1 else f" x {steps} batches"
    samples = count * config.effective_batch
    return f"{count}, {samples} samples a step: batch_size {size}{accumulated} in each"


def _open_facts(best: BestConfig) -> Iterator[Fact]:
    """Yield facts on variables that nothing read back, and on faster trials that were left open."""
    for name in best.evidence.not_read_back or ():
        variable = f"{name.removeprefix('env.')}={spelled(best.config.get(name))}"
        yield "unread", f"env {variable}: nothing read it back"
    for one in best.evidence.not_confirmed:
        changed = render(one.changed)
        yield "unconfirmed", f"trial {one.trial} ({changed}) was faster in the search: {one.reason}"
    for open_one in best.evidence.not_proven:
        yield "not proven", undecided_text(best.constraints.accuracy.metric, open_one)


def undecided_text(metric: str, one: parts.NotProven) -> str:
    """Return a clause on a faster trial whose accuracy is inconclusive."""
    why = inconclusive(metric, (one.quality, one.bound), one.limit, one.seeds)
    return f"trial {one.trial} ({render(one.changed)}) was faster, but is inconclusive: {why}"


def _learning_rate_text(best: BestConfig) -> str | None:
    """Return how the learning rate follows a new effective batch; None if that is unchanged."""
    own = TrainingConfig.of(best.evidence.baseline.config).effective_batch
    new, factor = best.as_measured().training_config.effective_batch, best.lr_scaling.factor
    if new == own:
        return None
    if factor != 1:
        return f"times {factor:g}, for a batch of {new} instead of {own}"
    return f"unchanged, for a batch of {new} instead of {own}: check it, or use --lr-scaling"


def pays_back_text(best: BestConfig, seconds: float | None) -> str | None:
    """Return when faster settings have paid off the search and their slower start; None if never.

    `seconds` are those of the search; None if not known.
    """
    evidence, gain = best.evidence, best.evidence.speedup.ratio - 1
    if seconds is None or best.keeps_baseline or gain <= 0:
        return None
    if (run := evidence.predicted_run) is not None:
        return _runs_until(seconds, run)
    rates = evidence.baseline.samples_per_second, evidence.best.samples_per_second
    start = max(0.0, (evidence.break_even_samples or 0) * (1 / rates[0] - 1 / rates[1]))
    return f"after {span((seconds + start) / gain)} of training (the search took {span(seconds)})"


def _runs_until(seconds: float, run: parts.PredictedRun) -> str | None:
    """Return after how many runs of known length a search has paid off; None if never."""
    saved = run.baseline_seconds - run.best_seconds
    if saved <= 0:
        return None
    if saved >= seconds:
        total = f"{span(seconds)} of search + {span(run.best_seconds)}"
        return f"in the first run: {total}, instead of {span(run.baseline_seconds)}"
    runs = math.ceil(seconds / saved)
    return f"after {runs} runs (the search took {span(seconds)}, each run saves {span(saved)})"
