"""Context of a search: machine, workload, baseline, search space and limits.

It is determined once, before the first trial, and does not change during the search.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.configuration.job import Inspect, Job, Task
from autotune.configuration.script import Script, ScriptOptions
from autotune.configuration.search_space import SearchSpace, narrow
from autotune.configuration.space_file import find_space, read_space
from autotune.configuration.training_config import TrainingConfig, render
from autotune.configuration.verdict import Tolerance
from autotune.context.script_facts import asked, observe, reachable
from autotune.context.time_budget import OUT_OF_TIME
from autotune.knobs.base import Value
from autotune.processes.runner import Runner
from autotune.system.trial_folder import make_private
from autotune.values.errors import NotSearchedEnoughError, UsageError, WorkloadError
from autotune.values.lr_scaling import LrRule, lr_factor
from autotune.values.machine import Machine
from autotune.values.objectives import OBJECTIVES, Objective, run_time
from autotune.values.outcome import (
    Inspected,
    Lost,
    Observed,
    Rejected,
    TimedOut,
    as_failure,
    describe,
)
from autotune.values.workload_facts import WorkloadFacts

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Options of a search, as the user gave them."""

    model_path: Path
    study: str
    storage: str | None
    """URL of Optuna's storage; None keeps the study in memory, until the process ends."""
    folder: Path
    """Folder for trials, logs and the result."""
    out: Path
    space: str = "default"
    trials: int | None = None
    """Total number of trials; None takes that of the search space."""
    time_budget_seconds: float | None = None
    device: str = "auto"
    objective: str = "throughput"
    run_samples: int | None = None
    """Length of the production run in samples, which makes its predicted time the objective."""
    run_epochs: int | None = None
    """Length of the production run in epochs, with the same effect."""
    memory_headroom: float = 0.08
    """Share of the device's memory that no trial may use, 0 to 1."""
    memory_limit_bytes: int | None = None
    accuracy_tolerance: Tolerance = field(default_factory=lambda: Tolerance(0.01, relative=True))
    min_accuracy: float | None = None
    accuracy_samples: int | None = None
    """Samples that each probe trains on; None takes some seconds of the baseline's training."""
    lr_scaling: LrRule = "none"
    """Rule by which the learning rate follows the batch size."""
    baseline: dict[str, Value] = field(default_factory=dict)
    warm_start: tuple[TrainingConfig, ...] = ()
    """Configurations to try before all others; values outside the space move to the nearest."""
    sampler: str | BaseSampler = "auto"
    """A name in `autotune.study.samplers.SAMPLERS`, "auto", or a sampler object."""
    seed: int = 0
    trial_timeout_seconds: float = 600.0
    script: ScriptOptions | None = None
    """Options to call the script at `model_path`; None for a model.py."""
    max_failures: int = 8
    """Number of consecutive failed trials that ends the search."""
    at_once: int = 1
    """Trials that run at the same time; those on the CPU share its memory evenly."""
    fresh_data: bool = False
    """True if each process builds its dataset itself, instead of forking a host that did."""
    force: bool = False
    """True to begin a new study beside one that was made for something else."""


@dataclass(frozen=True, slots=True)
class SearchContext:
    """The context of one search, which does not change while it runs."""

    options: SearchOptions
    machine: Machine
    facts: WorkloadFacts
    baseline: TrainingConfig
    space: SearchSpace
    trials: int
    """Total number of trials, the baseline included."""
    memory_limit_bytes: int
    time_budget_seconds: float | None = None
    """Seconds for one run of the search, with the confirmation; None for no limit."""
    start_seconds: float = 0.0
    """Seconds of a fresh interpreter until torch and the workload are imported, as inspected."""
    dataset_seconds: float = 0.0
    """Seconds to build the training set, as the host or the inspection measured."""
    is_dataset_shared: bool = False
    """True if the host built the dataset once for all processes that are forked from it."""
    observed: Observed | None = None
    """Observation of the unmodified script; None for a model.py."""
    device_uuid: str = ""
    """UUID of the accelerator; empty if torch does not tell."""

    @property
    def may_settle(self) -> bool:
        """True if the search may end early: the user did not ask for a number of trials."""
        return self.options.trials is None

    @property
    def host_seconds(self) -> float:
        """Seconds to start a warm host: an interpreter, and the dataset if hosts build it."""
        return self.start_seconds + (self.dataset_seconds if self.is_dataset_shared else 0.0)

    @property
    def objective(self) -> Objective:
        """The objective, which is maximised."""
        samples = _run_samples(self.options, self.facts)
        return OBJECTIVES["throughput"] if samples is None else run_time(samples)

    @property
    def metric(self) -> tuple[str, bool]:
        """Name of the quality metric, and True if higher is better."""
        if self.options.script is not None:
            return "metric_regex", self.options.script.higher_is_better
        return ("evaluate", True) if self.facts.has_evaluate else ("held_out_loss", False)

    @property
    def identity(self) -> dict[str, object]:
        """Facts that must not change while a study goes on, as JSON values."""
        script = self.options.script
        modules = {"modules": self.facts.local_modules} if self.facts.local_modules else {}
        return {
            **({} if script is None else {"script": script.identity}),
            "model_sha256": sha256_of(self.options.model_path),
            **modules,
            "space": {name: list(values) for name, values in self.space.domains.items()},
            "baseline": self.baseline.as_dict(),
            "objective": self.objective.identity,
            "memory_limit_bytes": self.memory_limit_bytes,
            "accuracy": [
                asdict(self.options.accuracy_tolerance),
                self.options.min_accuracy,
                self.options.accuracy_samples,
            ],
            "lr_scaling": self.options.lr_scaling,
            "machine": self.machine.fingerprint,
        }

    def lr_factor(self, config: TrainingConfig) -> float:
        """Return the factor by which `config` multiplies the baseline's learning rates."""
        batch, baseline = (int(c["batch_size"] or 1) for c in (config, self.baseline))
        return lr_factor(self.options.lr_scaling, batch, baseline)

    def job(self, task: Task, config: TrainingConfig, deadline_seconds: float | None = None) -> Job:
        """Return a job of this search; its deadline is `trial_timeout_seconds` by default."""
        return Job(
            task=task,
            device=self.machine.device,
            model_path=str(self.options.model_path.resolve()),
            script=self._call(config),
            config=config.as_dict(),
            seed=self.options.seed,
            lr_factor=self.lr_factor(config),
            memory_limit_bytes=self.memory_limit_bytes,
            deadline_seconds=deadline_seconds or self.options.trial_timeout_seconds,
            fresh_data=self.options.fresh_data,
        )

    def _call(self, config: TrainingConfig) -> Script | None:
        if self.options.script is None or self.observed is None:
            return None
        return self.options.script.call(config, asked(self.options.script, self.observed))


def survey(options: SearchOptions, runner: Runner, folder: Path | None = None) -> SearchContext:
    """Inspect machine and workload in a child process, and narrow the search space to them.

    Raises:
        UsageError: options or search space cannot be used here.
        WorkloadError: the workload cannot be built.
        NotSearchedEnoughError: the time budget is too short for the inspection.
        OSError: the study's folder cannot be made.
    """
    file = read_space(find_space(options.space))
    if folder is None:
        make_private(options.folder)
        folder = options.folder / "trials" / "inspect"
    observed = _observed(options, runner, folder)
    notes: tuple[str, ...] = ()
    started = time.monotonic()
    inspected = _inspected(options, observed, runner, folder)
    start_seconds = max(0.0, time.monotonic() - started - inspected.dataset_seconds)
    facts = inspected.workload
    if options.script is not None and observed is not None:
        file, notes = reachable(file, options.script, observed)
        facts = replace(observed.workload, has_evaluate=options.script.metric is not None)
    assert facts is not None
    if options.min_accuracy is not None and not facts.has_evaluate:
        raise UsageError(
            f"--min-accuracy {options.min_accuracy:g} needs a quality that {options.model_path} "
            "measures itself: define evaluate(model, device)."
        )
    _run_samples(options, facts)
    baseline = TrainingConfig.of({**facts.baseline, **options.baseline})
    _check_baseline(options, baseline)
    baseline = baseline.resolved(inspected.machine)
    sharing = 1 if inspected.machine.has_accelerator else options.at_once
    allowed = int((1 - options.memory_headroom) * inspected.machine.memory_bytes / sharing)
    return SearchContext(
        options=options,
        machine=inspected.machine,
        facts=facts,
        baseline=baseline,
        space=narrow(file, inspected.machine, facts, baseline).noted(notes),
        trials=options.trials or file.trials,
        memory_limit_bytes=min(options.memory_limit_bytes or allowed, allowed),
        time_budget_seconds=time_budget_of(options),
        start_seconds=start_seconds,
        dataset_seconds=inspected.dataset_seconds,
        is_dataset_shared=inspected.is_shared,
        observed=observed,
        device_uuid=inspected.device_uuid,
    )


def _check_baseline(options: SearchOptions, baseline: TrainingConfig) -> None:
    """Refuse settings of --baseline that other settings switch off.

    Raises:
        UsageError: a setting would not be in force.
    """
    lost = {n: v for n, v in options.baseline.items() if v is not None and baseline[n] != v}
    if lost:
        raise UsageError(
            f"--baseline {render(lost)} contradicts the other settings, with which it must be "
            f"{render({name: baseline[name] for name in lost})}."
        )


def _observed(options: SearchOptions, runner: Runner, folder: Path) -> Observed | None:
    """Observe the unmodified script; return None for a model.py."""
    if options.script is None:
        return None
    deadline = options.trial_timeout_seconds
    return observe(runner, options.model_path, options.script, folder / "script", deadline)


def _inspected(
    options: SearchOptions, observed: Observed | None, runner: Runner, folder: Path
) -> Inspected:
    """Inspect machine and workload; for a script only the machine, on the script's device."""
    device, path = options.device, options.model_path
    job = inspection(device, path, options.trial_timeout_seconds)
    job = replace(job, fresh_data=options.fresh_data)
    if observed is not None:
        job = inspection(observed.device, None, options.trial_timeout_seconds)
    return inspect(runner, job, folder)


def time_budget_of(options: SearchOptions) -> float | None:
    """Return the time budget in seconds; the space's own if neither time nor trials are given.

    Raises:
        UsageError: the search space cannot be read.
    """
    if options.time_budget_seconds is None and options.trials is None:
        return read_space(find_space(options.space)).seconds
    return options.time_budget_seconds


def _run_samples(options: SearchOptions, facts: WorkloadFacts) -> int | None:
    """Return the samples of the run whose time is the objective; None for throughput.

    Raises:
        UsageError: the flags contradict each other or the workload.
    """
    if options.run_samples is not None and options.run_epochs is not None:
        raise UsageError("--run-samples and --run-epochs say the same. Give one of them.")
    if options.objective == "run_time" and options.run_samples is options.run_epochs is None:
        raise UsageError("--objective run_time needs the run: add --run-samples or --run-epochs.")
    if options.run_epochs is None:
        return options.run_samples
    if facts.dataset_samples is None:
        raise UsageError(
            f"--run-epochs {options.run_epochs} needs a dataset with a length; give --run-samples."
        )
    return options.run_epochs * facts.dataset_samples


def inspection(device: str, model_path: Path | None, deadline_seconds: float = 300.0) -> Job:
    """Return the job that inspects a device and, with a path, a workload."""
    path = None if model_path is None else str(model_path.resolve())
    return Job(Inspect(), device, path, deadline_seconds=deadline_seconds)


def inspect(runner: Runner, job: Job, folder: Path) -> Inspected:
    """Inspect the machine in a child process, and the workload if the job has a path.

    Raises:
        UsageError: there is no such device.
        WorkloadError: the workload cannot be imported or built.
        NotSearchedEnoughError: the time budget is too short for the inspection.
    """
    outcome = runner.run(job, folder)
    if isinstance(outcome, Inspected):
        return outcome
    is_cut = isinstance(outcome, TimedOut) and outcome.limit_seconds < job.deadline_seconds
    if is_cut or outcome == Lost(OUT_OF_TIME):
        raise NotSearchedEnoughError(
            "not searched enough: inspecting the machine and the workload took the time budget, or "
            "a quarter of it. Use a --time-budget of at least five times the seconds that building "
            "the model and the dataset takes."
        )
    if isinstance(outcome, Rejected):
        raise UsageError(outcome.detail)
    raise WorkloadError(f"{describe(as_failure(outcome))}\nWhole log: {folder / 'stderr.log'}")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 digest of a file, in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
