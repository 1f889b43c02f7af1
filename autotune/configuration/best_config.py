"""Schema, reading and writing of best.yaml, the result of a search."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError

from autotune.configuration import evidence as parts
from autotune.configuration.training_config import TrainingConfig, setting_faults
from autotune.knobs import knob_named
from autotune.knobs.base import Effect, Value, spelled
from autotune.knobs.own import own_knob
from autotune.process.common.trial_folder import write_atomically
from autotune.values.errors import UsageError
from autotune.values.strict_yaml import Document, dump, read
from autotune.values.text import clean

FORMAT = 1
"""Format of best.yaml."""


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
