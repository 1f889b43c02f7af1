"""The answer as a file: schema, reading and writing of best.yaml."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, SkipValidation, ValidationError

from autotune.config import TrainingConfig, setting_faults
from autotune.errors import UsageError
from autotune.knobs.base import Value, spelled
from autotune.lr_scaling import LrRule
from autotune.strict_yaml import Document, dump, read
from autotune.suggest import did_you_mean
from autotune.trial_folder import write_atomically

FORMAT = 1
UNCHANGED = "unchanged"
"""The metric of a search that tries nothing that could change the model."""
NOT_MEASURED = "not measured: nothing was tried that could change it"
"""What stands for the quality there."""

# Checked by `_config_faults`, which names one fault where a union would name three.
Settings = dict[str, Annotated[Value, SkipValidation]]
Pair = tuple[float, float]
Stage = Literal["loading", "copying", "computing"]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Throughput(_Part):
    """Samples per second, with the interval that holds the median with 95 % confidence."""

    samples_per_second: float
    ci95: Pair


class Stages(_Part):
    """Samples per second of each stage of training if it were the only one."""

    bound: Stage
    """The slowest."""
    loading: float | None = None
    copying: float | None = None
    """None where a stage takes no time, as copying on a CPU."""
    computing: float | None = None
    optimizer_share: float
    """Of computing, as a fraction."""


class Baseline(_Part):
    """The user's own settings and what they reach."""

    config: Settings
    samples_per_second: float
    ci95: Pair
    stages: Stages | None = None


class Speedup(_Part):
    """Best over baseline, from rounds of fresh processes in alternation."""

    ratio: float
    ci95: Pair
    rounds: int


class StageLimits(_Part):
    """Samples per second of each stage alone: what no setting can exceed."""

    loader: float
    compute: float


class PredictedRun(_Part):
    """A run of so many samples from start to end: what is paid once and the steady state."""

    samples: int
    baseline_seconds: float
    best_seconds: float


class Blocks(_Part):
    """Timed blocks that the rates rest on, and those of them that other programs disturbed."""

    timed: int
    disturbed: int | None
    """None where nobody could tell in some process, as under a CPU quota."""


class Evidence(_Part):
    """What was measured, and against what."""

    objective: str
    baseline: Baseline
    best: Throughput
    speedup: Speedup
    compile_seconds: float
    break_even_samples: int
    predicted_run: PredictedRun | None = None
    """Where the objective is the time of a run; `speedup` is that of this time then."""
    blocks: Blocks | None = None
    limits: StageLimits | None


class MemoryEvidence(_Part):
    """A margin at or below 0 holds."""

    peak_bytes: int
    limit_bytes: int
    margin: float


class GateEvidence(_Part):
    """How far one batch is from float64, or float32 where the model cannot run in that."""

    loss_error: float
    gradient_error: float
    gradient_cosine: float
    trajectory_error: float | None = None
    """How far the losses of the first steps are from the reference's, in units of what another
    seed changes; None in files from before this was measured."""
    path_error: float | None = None
    """How far the weights after those steps are from the reference's, relative to how far those
    went; None in files from before this was measured."""
    reach_error: float | None = None
    """By how much more or less far the weights went, whichever way."""


class AccuracyEvidence(_Part):
    """A margin at or below 0 holds; a short probe bounds early training only."""

    evidence: Literal["exact", "gate", "probe", "gate and probe"] = "probe"
    """Without a probe the baseline's qualities stand for a training that computes the same."""
    gate: GateEvidence | None = None
    metric: str
    baseline: float
    best: float
    tolerance: float
    margin: float
    samples: int
    seeds: int
    needs_full_run: bool

    @property
    def is_measured(self) -> bool:
        """Whether the numbers say anything: there may have been nothing to measure."""
        return self.metric != UNCHANGED


class LearningRate(_Part):
    """What the learning rates of model.py were multiplied by, in trials and probes alike."""

    rule: LrRule = "none"
    factor: float = 1.0


class ConstraintEvidence(_Part):
    """Every constraint that the configuration was held to."""

    memory: MemoryEvidence
    accuracy: AccuracyEvidence


class MachineRecord(_Part):
    """Where it was measured."""

    device: str
    cpu: str
    cores: int
    memory_bytes: int
    torch: str
    python: str
    driver: str | None = None
    """Of the accelerator; None without one, and in files from before this was noted."""
    fingerprint: str


class Provenance(_Part):
    """Which trial of which study it is."""

    study: str
    storage: str
    trial: int
    model: str
    model_sha256: str
    autotune: str
    created: str


class BestConfig(_Part):
    """The whole of best.yaml."""

    autotune: Literal[1] = 1
    config: Settings
    evidence: Evidence
    constraints: ConstraintEvidence
    lr_scaling: LearningRate = LearningRate()
    machine: MachineRecord
    provenance: Provenance

    @property
    def keeps_baseline(self) -> bool:
        """Whether the answer is "keep your settings"."""
        return self.config == self.evidence.baseline.config

    @property
    def training_config(self) -> TrainingConfig:
        """The configuration, ready to be applied."""
        return TrainingConfig.of(self.config)


def write_best(best: BestConfig, path: Path) -> None:
    """Write best.yaml as a whole or not at all.

    Raises:
        OSError: no space or no permission; an older file stays as it was.
    """
    write_atomically(path, dump(best.model_dump(mode="json")))


def read_best(path: Path) -> BestConfig:
    """Read best.yaml and check it against the schema.

    Raises:
        UsageError: missing, not valid (every fault with its line), or of a newer format.
    """
    document = read(path)
    if document.value.get("unconfirmed"):
        raise UsageError(
            f"{document.position('unconfirmed')}: this is the fastest trial of a search that has "
            "not ended, and was never confirmed. Let the search end, and use its best.yaml."
        )
    version = document.value.get("autotune")
    if type(version) is not int:
        raise UsageError(
            f"{document.position('autotune')}: autotune: {version!r} is no format; write "
            f"autotune: {FORMAT}."
        )
    if version > FORMAT:
        raise UsageError(
            f"{document.position('autotune')}: format {version} was written by a newer autotune; "
            f"this one reads format {FORMAT}. Upgrade autotune."
        )
    try:
        best = BestConfig.model_validate_json(json.dumps(document.value))
    except ValidationError as error:
        raise UsageError("\n".join(_schema_faults(error, document))) from None
    faults = [
        *_config_faults(best.config, document, "config"),
        *_config_faults(best.evidence.baseline.config, document, "evidence", "baseline", "config"),
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
            hint = did_you_mean(str(place[-1]), _fields(place[:-1]))
            faults.append(f"{document.key_position(*place)}: {name} is not known.{hint}")
        else:
            faults.append(f"{document.position(*place)}: {name}: {fault['msg']}.")
    return faults


def _fields(place: tuple[int | str, ...]) -> list[str]:
    """The names that the schema knows at a place."""
    part: type[BaseModel] = BestConfig
    for name in place:
        annotation = part.model_fields[str(name)].annotation
        kinds = get_args(annotation) or (annotation,)  # an optional part is a union with None
        parts = [k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)]
        if not parts:
            return []
        part = parts[0]
    return list(part.model_fields)


def _config_faults(config: Settings, document: Document, *place: str) -> list[str]:
    faults = setting_faults(config)
    if not faults:
        for name, value in TrainingConfig.of(config).as_dict().items():
            if name in config and config[name] != value:
                faults[name] = (
                    f"{name}={spelled(config[name])} contradicts the other settings, with which "
                    f"it can only be {spelled(value)}."
                )
    return [f"{document.position(*place, name)}: {fault}" for name, fault in faults.items()]
