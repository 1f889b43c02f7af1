"""Options of a search, in one value for each question that they answer.

Flags, notes of a study and tests name options flatly; `SearchOptions.of` sorts such names into the
values, and `SearchOptions.flat` returns them.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, get_type_hints

from autotune.configuration.constraints import THROUGHPUT, Objective, Tolerance
from autotune.configuration.job import Job
from autotune.configuration.script import ScriptOptions
from autotune.configuration.search_space import EffectiveBatch, find_space, read_space
from autotune.configuration.training_config import LrRule, TrainingConfig, render
from autotune.knobs.base import Value
from autotune.values.errors import UsageError
from autotune.values.machine import Machine
from autotune.values.outcome import WorkloadFacts

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

_NOTHING: Mapping[str, Value] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    """The training: its file, its settings of today, and how it is called."""

    model_path: Path
    script: ScriptOptions | None = None
    """Options to call the script at `model_path`; None for a model.py."""
    baseline: dict[str, Value] = field(default_factory=dict)
    """Settings that override the workload's own."""
    lr_scaling: LrRule = "none"
    """Rule by which the learning rate follows the batch size."""
    effective_batch: EffectiveBatch | None = None
    """Samples of every optimizer step; None keeps the baseline's if it accumulates gradients."""
    fresh_data: bool = False
    """True if each process builds its dataset itself, instead of forking a host that did."""
    deterministic: bool = False
    """True if all settings, the user's included, run in torch's deterministic mode."""

    @property
    def called(self) -> ScriptOptions:
        """The call of the file; a model.py has neither arguments nor a module."""
        return self.script or ScriptOptions(())

    def held_batch(self, baseline: TrainingConfig) -> int | None:
        """Return the samples of every optimizer step; None if they may vary."""
        accumulates = baseline["accumulation_steps"] != 1
        asked = self.effective_batch or ("keep" if accumulates else "free")
        if asked == "keep":
            return baseline.effective_batch
        return None if asked == "free" else int(asked)

    def own_settings(
        self, facts: WorkloadFacts, found: Mapping[str, Value] = _NOTHING
    ) -> TrainingConfig:
        """Return the user's settings: `found`, then the workload's, then `baseline`; the last wins.

        Raises:
            UsageError: other settings switch off one of `baseline`, or cannot be deterministic.
        """
        mode = {"deterministic": True} if self.deterministic else {}
        config = TrainingConfig.of({**found, **facts.baseline, **self.baseline, **mode})
        lost = {n: v for n, v in self.baseline.items() if v is not None and config[n] != v}
        if lost:
            raise UsageError(
                f"--baseline {render(lost)} contradicts the other settings, with which it must "
                f"be {render({name: config[name] for name in lost})}."
            )
        faults = [
            f"--deterministic: your setting {render({knob.name: value})} cannot keep it, because "
            f"{reason}. Change it, or add --baseline {render({knob.name: knob.default})}."
            for knob, value in config.items()
            if self.deterministic and (reason := knob.nondeterminism(value))
        ]
        if faults:
            raise UsageError("\n".join(faults))
        return config


@dataclass(frozen=True, slots=True)
class StudyOptions:
    """Name and place of the study and its files."""

    name: str
    storage: str | None
    """URL of Optuna's storage; None keeps the study in memory, until the process ends."""
    folder: Path
    """Folder for trials, logs and the result."""
    out: Path
    """File of the result."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits in trials, time and failures, of the search and of each trial."""

    trials: int | None = None
    """Total number of trials; None takes that of the search space."""
    seconds: float | None = None
    """Seconds for one run of the search; None for no limit, or that of the search space."""
    trial_timeout_seconds: float = 600.0
    max_failures: int = 8
    """Number of consecutive failed trials that ends the search."""


@dataclass(frozen=True, slots=True)
class ObjectiveOptions:
    """Objective of the search."""

    name: str = "throughput"
    """throughput or time-to-loss; after the latter, `=` and a training loss may follow."""
    run_samples: int | None = None
    """Length of the production run in samples, which makes its predicted time the objective."""
    run_epochs: int | None = None
    """Length of the production run in epochs, with the same effect."""

    @property
    def to_loss(self) -> bool:
        """True if the time to a loss is the objective."""
        return self.name != "throughput"

    def check(self) -> None:
        """Check that they do not contradict each other.

        Raises:
            UsageError: they do.
        """
        if sum([self.to_loss, self.run_samples is not None, self.run_epochs is not None]) > 1:
            raise UsageError(
                "--objective time-to-loss, --target-samples and --target-epochs: give only one."
            )

    def for_workload(self, facts: WorkloadFacts) -> Objective:
        """Return the objective for a workload.

        Raises:
            UsageError: the options contradict the workload.
        """
        if self.to_loss:
            loss = self.name.partition("=")[2]
            return Objective(to_loss=True, loss=float(loss) if loss else None)
        if self.run_samples is not None:
            return Objective(self.run_samples)
        if self.run_epochs is None:
            return THROUGHPUT
        if facts.dataset_samples is None:
            raise UsageError(
                f"--target-epochs {self.run_epochs} needs a dataset with a length; give "
                "--target-samples."
            )
        return Objective(self.run_epochs * facts.dataset_samples)


@dataclass(frozen=True, slots=True)
class AccuracyOptions:
    """Accuracy that a configuration needs, and the length of its probes."""

    tolerance: Tolerance = field(default_factory=lambda: Tolerance(0.01, relative=True))
    minimum: float | None = None
    """Least quality that `evaluate` may return; None for no such limit."""
    samples: int | None = None
    """Samples that each probe trains on; None takes some seconds of the baseline's training."""

    @property
    def identity(self) -> list[object]:
        """The options as JSON values, by which a study is recognised."""
        return [asdict(self.tolerance), self.minimum, self.samples]

    def check(self, facts: WorkloadFacts, model_path: Path) -> None:
        """Check that the workload at `model_path` measures what `minimum` limits.

        Raises:
            UsageError: it measures no quality itself.
        """
        if self.minimum is not None and not facts.has_evaluate:
            raise UsageError(
                f"--min-accuracy {self.minimum:g} needs a quality that {model_path} measures "
                "itself: define evaluate(model, device)."
            )


@dataclass(frozen=True, slots=True)
class Resources:
    """Device and memory that trials may use."""

    device: str = "auto"
    memory_headroom: float = 0.08
    """Share of the device's memory that no trial may use, 0 to 1."""
    memory_limit_bytes: int | None = None
    """Most memory of a trial in bytes; None for all but the headroom."""
    at_once: int = 1
    """Trials that run at the same time; they share the memory of the host evenly."""
    processes: int = 1
    """Processes that train together in each trial; 0: as many as `launch` starts, until told."""
    launch: str | None = None
    """Command of a launcher that starts the processes of a trial; None for torch's."""

    def started(self, job: Job) -> Job:
        """Return the job for as many processes as train together, however they are started."""
        return replace(job, processes=self.processes, launch=tuple(shlex.split(self.launch or "")))

    def bytes_per_trial(self, machine: Machine) -> int:
        """Return the most memory in bytes that a trial may use on a machine."""
        sharing = 1 if machine.has_accelerator else self.at_once
        allowed = int((1 - self.memory_headroom) * machine.memory_bytes / sharing)
        return min(self.memory_limit_bytes or allowed, allowed)

    def host_bytes_per_trial(self, machine: Machine) -> int | None:
        """Return the most host memory in bytes that a trial on an accelerator may use.

        Trials at the same time share it evenly. None on a CPU: `bytes_per_trial` is of the host.
        """
        if not machine.has_accelerator:
            return None
        return int((1 - self.memory_headroom) * machine.host.usable_memory_bytes / self.at_once)


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """Search space and sampler, which decide on the configurations that are tried."""

    space: str = "default"
    """Name of a shipped search space, or the path of a YAML file."""
    without: tuple[str, ...] = ()
    """Settings of the space that keep the user's values all the same."""
    sampler: str | BaseSampler = "auto"
    """A class of `optuna.samplers` by its name, "auto", or a sampler object."""
    seed: int = 0
    """Seed of the search and of the trainings."""
    warm_start: tuple[TrainingConfig, ...] = ()
    """Configurations to try before all others; values outside the space move to the nearest."""


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Options of a search, as the user gave them."""

    workload: WorkloadOptions
    study: StudyOptions
    budget: Budget = field(default_factory=Budget)
    objective: ObjectiveOptions = field(default_factory=ObjectiveOptions)
    accuracy: AccuracyOptions = field(default_factory=AccuracyOptions)
    resources: Resources = field(default_factory=Resources)
    sampling: SamplingOptions = field(default_factory=SamplingOptions)

    @classmethod
    def of(cls, **flat: Any) -> SearchOptions:
        """Return the options that flat names give; those that are not named have their default.

        Raises:
            TypeError: there is no such name, or one without a default is missing.
        """
        if unknown := flat.keys() - _FIELDS.keys():
            raise TypeError(f"no options of a search: {', '.join(sorted(unknown))}")
        if flat.get("launch"):
            flat["nproc_per_node"] = 0
        given: dict[str, dict[str, Any]] = {value: {} for value in _VALUES}
        for name, option in flat.items():
            value, field_name = _FIELDS[name]
            given[value][field_name] = option
        return cls(**{value: kind(**given[value]) for value, kind in _VALUES.items()})

    def flat(self) -> dict[str, Any]:
        """Return each option by its flat name."""
        return {
            name: getattr(getattr(self, value), field_name)
            for name, (value, field_name) in _FIELDS.items()
        }


def time_budget_of(options: SearchOptions) -> float | None:
    """Return the time budget in seconds; the space's own if neither time nor trials are given.

    Raises:
        UsageError: the search space cannot be read.
    """
    if options.budget.seconds is None and options.budget.trials is None:
        return read_space(find_space(options.sampling.space)).seconds
    return options.budget.seconds


_VALUES: dict[str, type[Any]] = get_type_hints(SearchOptions)
# Flat names that differ from their field's; flags and stored notes have them.
_OTHER_NAMES = {
    ("study", "name"): "study",
    ("budget", "seconds"): "time_budget_seconds",
    ("objective", "name"): "objective",
    ("accuracy", "tolerance"): "accuracy_tolerance",
    ("accuracy", "minimum"): "min_accuracy",
    ("accuracy", "samples"): "accuracy_samples",
    ("resources", "processes"): "nproc_per_node",
}
_FIELDS = {
    _OTHER_NAMES.get((value, each.name), each.name): (value, each.name)
    for value, kind in _VALUES.items()
    for each in fields(kind)
}
