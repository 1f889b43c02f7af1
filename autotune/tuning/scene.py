"""Where a search takes place: machine, workload, baseline, search space and limits.

Everything that holds still during a search, worked out once before the first trial.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.config import TrainingConfig, render
from autotune.constraints import Tolerance
from autotune.errors import UsageError, WorkloadError
from autotune.job import Inspect, Job, Task
from autotune.knobs.base import Value
from autotune.lr_scaling import LrRule, lr_factor
from autotune.machine import Machine
from autotune.objectives import OBJECTIVES, Objective, run_time
from autotune.outcome import Inspected, Observed, Rejected, as_failure, describe
from autotune.script import Script, ScriptOptions
from autotune.space import SearchSpace, narrow
from autotune.space_file import SpaceFile, find_space, read_space
from autotune.trial_folder import make_private
from autotune.tuning.observation import asked, observe, reachable
from autotune.tuning.running.runner import Runner
from autotune.workload_facts import WorkloadFacts

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """What a person asked for."""

    model_path: Path
    study: str
    storage: str | None
    """URL; None: in memory, where nothing outlives the process."""
    folder: Path
    """Where trials, logs and the answer go."""
    out: Path
    space: str = "default"
    trials: int | None = None
    """In total; None: as many as the search space asks for."""
    time_budget_seconds: float | None = None
    device: str = "auto"
    objective: str = "throughput"
    run_samples: int | None = None
    """Of the production run: its predicted time is the objective then, compilation included."""
    run_epochs: int | None = None
    """The same in epochs."""
    memory_headroom: float = 0.08
    memory_limit_bytes: int | None = None
    accuracy_tolerance: Tolerance = field(default_factory=lambda: Tolerance(0.01, relative=True))
    min_accuracy: float | None = None
    accuracy_samples: int | None = None
    """Samples that each probe trains on; None: some seconds of the baseline's training."""
    lr_scaling: LrRule = "none"
    """How the learning rate follows the batch size."""
    baseline: dict[str, Value] = field(default_factory=dict)
    warm_start: tuple[TrainingConfig, ...] = ()
    """Configurations to try before all others, as far as the space has them."""
    sampler: str | BaseSampler = "auto"
    """One of `autotune.tuning.sampling.samplers.SAMPLERS`, auto, or a sampler of one's own."""
    seed: int = 0
    trial_timeout_seconds: float = 600.0
    script: ScriptOptions | None = None
    """How to call what lies at `model_path`, where that is a script."""
    max_failures: int = 8
    """Trials in a row that fail after which the search ends."""
    at_once: int = 1
    """Trials that run at the same time; those on the CPU share its memory evenly."""
    force: bool = False
    """Whether to begin anew beside the trials of a study that was made for something else."""


@dataclass(frozen=True, slots=True)
class Scene:
    """The fixed facts of one search."""

    options: SearchOptions
    machine: Machine
    facts: WorkloadFacts
    baseline: TrainingConfig
    space: SearchSpace
    trials: int
    """In total, the baseline included."""
    memory_limit_bytes: int
    time_budget_seconds: float | None = None
    """For one run of the search, the confirmation included; None: until the trials are done."""
    start_seconds: float = 0.0
    """What a fresh interpreter takes to be ready, workload built: the inspection's own time."""
    observed: Observed | None = None
    """What a script does untouched."""
    device_uuid: str = ""
    """Which accelerator it is, whatever its number; empty where torch does not tell."""

    @property
    def may_settle(self) -> bool:
        """Whether the search may end before its trials are done: not where they were asked for."""
        return self.options.trials is None

    @property
    def objective(self) -> Objective:
        """What is maximised."""
        samples = _run_samples(self.options, self.facts)
        return OBJECTIVES["throughput"] if samples is None else run_time(samples)

    @property
    def metric(self) -> tuple[str, bool]:
        """What quality is called, and whether more of it is better."""
        if self.options.script is not None:
            return "metric_regex", self.options.script.higher_is_better
        return ("evaluate", True) if self.facts.has_evaluate else ("held_out_loss", False)

    @property
    def identity(self) -> dict[str, object]:
        """What must not change while a study goes on."""
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
        """What `config` multiplies the baseline's learning rates by."""
        batch, baseline = (int(c["batch_size"] or 1) for c in (config, self.baseline))
        return lr_factor(self.options.lr_scaling, batch, baseline)

    def job(self, task: Task, config: TrainingConfig, deadline_seconds: float | None = None) -> Job:
        """A job of this search."""
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
        )

    def _call(self, config: TrainingConfig) -> Script | None:
        if self.options.script is None or self.observed is None:
            return None
        return self.options.script.call(config, asked(self.options.script, self.observed))


def survey(options: SearchOptions, runner: Runner, folder: Path | None = None) -> Scene:
    """Inspect machine and workload in a child, and narrow the search space to them.

    Raises:
        UsageError: flags or search space that cannot be used here.
        WorkloadError: the workload cannot even be built.
        OSError: the study's folder cannot be made.
    """
    file = read_space(find_space(options.space))
    if folder is None:
        make_private(options.folder)
        folder = options.folder / "trials" / "inspect"
    started = time.monotonic()
    observed = _observed(options, runner, folder)
    notes: tuple[str, ...] = ()
    inspected = _inspected(options, observed, runner, folder)
    start_seconds = time.monotonic() - started
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
    return Scene(
        options=options,
        machine=inspected.machine,
        facts=facts,
        baseline=baseline,
        space=narrow(file, inspected.machine, facts, baseline).noted(notes),
        trials=options.trials or file.trials,
        memory_limit_bytes=min(options.memory_limit_bytes or allowed, allowed),
        time_budget_seconds=_time_budget(options, file),
        start_seconds=start_seconds,
        observed=observed,
        device_uuid=inspected.device_uuid,
    )


def _check_baseline(options: SearchOptions, baseline: TrainingConfig) -> None:
    """Refuse settings on the command line that others switch off: they would not be measured.

    Raises:
        UsageError: there are such.
    """
    lost = {n: v for n, v in options.baseline.items() if v is not None and baseline[n] != v}
    if lost:
        raise UsageError(
            f"--baseline {render(lost)} contradicts the other settings, with which it can only be "
            f"{render({name: baseline[name] for name in lost})}."
        )


def _observed(options: SearchOptions, runner: Runner, folder: Path) -> Observed | None:
    """What the script does untouched, where it is one."""
    if options.script is None:
        return None
    deadline = options.trial_timeout_seconds
    return observe(runner, options.model_path, options.script, folder / "script", deadline)


def _inspected(
    options: SearchOptions, observed: Observed | None, runner: Runner, folder: Path
) -> Inspected:
    """The machine with the workload; of a script the machine alone, on the device it chose."""
    device, path = options.device, options.model_path
    job = inspection(device, path, options.trial_timeout_seconds)
    if observed is not None:
        job = inspection(observed.device, None, options.trial_timeout_seconds)
    return inspect(runner, job, folder)


def _time_budget(options: SearchOptions, file: SpaceFile) -> float | None:
    """What was asked for; the space's own where neither time nor trials were."""
    if options.time_budget_seconds is None and options.trials is None:
        return file.seconds
    return options.time_budget_seconds


def _run_samples(options: SearchOptions, facts: WorkloadFacts) -> int | None:
    """Samples of the run whose time is the objective; None where throughput is.

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
            f"--run-epochs {options.run_epochs} needs a dataset that knows its length; "
            "give --run-samples."
        )
    return options.run_epochs * facts.dataset_samples


def inspection(device: str, model_path: Path | None, deadline_seconds: float = 300.0) -> Job:
    """The job to inspect a device and, with a path, a workload."""
    path = None if model_path is None else str(model_path.resolve())
    return Job(Inspect(), device, path, deadline_seconds=deadline_seconds)


def inspect(runner: Runner, job: Job, folder: Path) -> Inspected:
    """Ask a child what the machine allows and, where the job has a path, what the workload is.

    Raises:
        UsageError: there is no such device.
        WorkloadError: the workload cannot be imported or built.
    """
    outcome = runner.run(job, folder)
    if isinstance(outcome, Inspected):
        return outcome
    if isinstance(outcome, Rejected):
        raise UsageError(outcome.detail)
    raise WorkloadError(f"{describe(as_failure(outcome))}\nWhole log: {folder / 'stderr.log'}")


def sha256_of(path: Path) -> str:
    """Digest of a file's bytes, in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
