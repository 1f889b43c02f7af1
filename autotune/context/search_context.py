"""Context of a search: machine, workload, baseline, search space and limits.

It is determined once, before the first trial, and does not change during the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.configuration import search_space
from autotune.configuration.constraints import Objective
from autotune.configuration.job import Job, Task
from autotune.configuration.mismatch import sha256_of
from autotune.configuration.script import Judge
from autotune.configuration.training_config import BATCH_KNOBS, TrainingConfig, lr_factor
from autotune.context import ranks, script_loss
from autotune.context.inspection import look
from autotune.context.options import SearchOptions, time_budget_of
from autotune.context.own_knobs import as_found, check_own_knobs, with_preset, words_of
from autotune.context.script_ways import Wanted
from autotune.context.workload import Traits
from autotune.process.common.trial_folder import make_private
from autotune.process.runner import Runner
from autotune.study.facts import FORMAT
from autotune.values.machine import Machine
from autotune.values.outcome import WorkloadFacts


@dataclass(frozen=True, slots=True)
class SearchContext:
    """The context of one search, which does not change while it runs."""

    options: SearchOptions
    machine: Machine
    traits: Traits
    baseline: TrainingConfig
    space: search_space.SearchSpace
    trials: int
    """Total number of trials, the baseline included."""
    memory_limit_bytes: int
    time_budget_seconds: float | None = None
    """Seconds for one run of the search, with the confirmation; None for no limit."""
    start_seconds: float = 0.0
    """Seconds of a fresh interpreter until torch and the workload are imported, as inspected."""
    package_seconds: float = 0.0
    """Seconds for which a warm host imports the script's packages."""
    dataset_seconds: float = 0.0
    """Seconds to build the training set, as the host or the inspection measured."""
    is_dataset_shared: bool = False
    """True if the host built the dataset once for all processes that are forked from it."""
    device_uuid: str = ""
    """UUID of the accelerator; empty if torch does not report it."""
    device_free_bytes: int | None = None
    """Memory of the accelerator that was free before the search; None if not known."""

    @property
    def processes(self) -> int:
        """Processes that train together in each trial."""
        return self.options.resources.processes

    @property
    def facts(self) -> WorkloadFacts:
        """Facts on the workload."""
        return self.traits.facts

    @property
    def judge(self) -> Judge:
        """Quality metric by which a training is judged."""
        return self.traits.judge

    @property
    def counts_samples(self) -> bool:
        """False if a script's samples are unknown, so that each of its steps counts as one."""
        return self.traits.seen.counts_samples

    @property
    def unit(self) -> str:
        """Unit of progress: samples, or steps where samples are unknown."""
        return "samples" if self.counts_samples else "steps"

    @property
    def rate_unit(self) -> str:
        """Unit of every throughput."""
        return f"{self.unit}/s"

    @property
    def host_seconds(self) -> float:
        """Seconds to start a warm host: interpreter, packages, and a dataset that it builds."""
        dataset = self.dataset_seconds if self.is_dataset_shared else 0.0
        return self.start_seconds + self.package_seconds + dataset

    @property
    def objective(self) -> Objective:
        """The objective."""
        found = self.options.objective.for_workload(self.facts)
        return found if self.counts_samples else replace(found, unit=self.rate_unit)

    @property
    def identity(self) -> dict[str, object]:
        """Facts that must not change while a study goes on, as JSON values; those that it has."""
        workload = self.options.workload
        facts = {
            **self.traits.identity,
            "model_sha256": sha256_of(workload.model_path),
            "modules": self.facts.local_modules,
            "space": {name: list(values) for name, values in self.space.domains.items()},
            "effective_batch": self.space.effective_batch,
            "effects": dict(self.space.effects),
            "baseline": self.baseline.as_dict(),
            "objective": self.objective.identity,
            "memory_limit_bytes": self.memory_limit_bytes,
            "accuracy": self.options.accuracy.identity,
            "lr_scaling": workload.lr_scaling,
            "machine": self.machine.fingerprint,
            "processes": None if self.processes == 1 else self.processes,
            "unit": None if self.counts_samples else self.unit,
            "format": FORMAT,
        }
        return {name: fact for name, fact in facts.items() if fact not in (None, {})}

    def lr_factor(self, config: TrainingConfig) -> float:
        """Return the factor by which `config` multiplies the baseline's learning rates."""
        rule, own = self.options.workload.lr_scaling, self.baseline.effective_batch
        return lr_factor(rule, config.effective_batch, own)

    def job(self, task: Task, config: TrainingConfig, deadline_seconds: float | None = None) -> Job:
        """Return a job of this search; its deadline is `trial_timeout_seconds` by default."""
        workload = self.options.workload
        all_train = ranks.is_of_all(task, config)
        config = config if all_train else config.alone
        factor = self.lr_factor(config)
        job = Job(
            task=task,
            device=self.machine.device,
            model_path=str(workload.model_path.resolve()),
            script=self.traits.call(config, factor),
            config=config.as_dict(),
            seed=self.options.sampling.seed,
            lr_factor=factor,
            memory_limit_bytes=self.memory_limit_bytes,
            host_limit_bytes=self.options.resources.host_bytes_per_trial(self.machine),
            deadline_seconds=deadline_seconds or self.options.budget.trial_timeout_seconds,
            # A host that built the dataset could not be forked for several processes next.
            fresh_data=workload.fresh_data or self.processes > 1,
        )
        return self.options.resources.started(job) if all_train else job


def survey(options: SearchOptions, runner: Runner, folder: Path | None = None) -> SearchContext:
    """Inspect machine and workload in a child process, and narrow the search space to them.

    Raises:
        UsageError: options or search space cannot be used here.
        WorkloadError: the workload cannot be built.
        NotSearchedEnoughError: the time budget is too short for the inspection.
        OSError: the study's folder cannot be made.
    """
    workload = options.workload
    options.objective.check()
    if options.objective.to_loss:
        script_loss.check_followed(workload.called.judge)
    ranks.check_room(options.resources)
    file = search_space.read_space(search_space.find_space(options.sampling.space))
    file = with_preset(file, workload.called).without(options.sampling.without)
    check_own_knobs(file.own.offers, file, workload)
    ranks.check_held(options)
    if folder is None:
        make_private(options.study.folder)
        folder = options.study.folder / "trials" / "inspect"
    wanted = _wanted(options, file)
    traits, found, start_seconds, notes = look(workload, options.resources, runner, folder, wanted)
    if workload.lr_scaling != "none":
        traits = traits.scaling_rates()
    # A launcher decides how many processes it starts.
    resources = replace(options.resources, processes=traits.seen.processes)
    options = replace(options, resources=resources) if resources.launch else options
    options.accuracy.check(traits.facts, workload.model_path)
    objective = options.objective.for_workload(traits.facts)
    file, today = as_found(file, workload, traits.facts)
    baseline = workload.own_settings(traits.facts, today)
    if traits.facts.comm_dtypes is None:
        baseline = baseline.alone
    baseline = baseline.resolved(found.machine)
    if baseline["deterministic"]:  # as --deterministic asks
        traits = replace(traits, facts=replace(traits.facts, fills_memory=True))
    held = ranks.held_by_each(options, baseline)
    traits = script_loss.judging_batches(
        traits, options, file, baseline, runner, folder / "batches"
    )
    file, kept = traits.narrowed(file, options.resources.processes, held is not None)
    samples = traits.facts.dataset_samples
    file, lost = ranks.space_of_each(file, options, found.machine, samples, held)
    space = search_space.narrow(file, found.machine, traits.facts, baseline, held)
    judge = script_loss.needed(traits.judge, space)
    if objective.to_loss:
        script_loss.check_followed(judge)
    return SearchContext(
        options=options,
        machine=found.machine,
        traits=replace(traits, judge=judge),
        baseline=baseline,
        space=space.noted((*notes, *kept, *lost)),
        trials=options.budget.trials or file.trials,
        memory_limit_bytes=options.resources.bytes_per_trial(found.machine),
        time_budget_seconds=time_budget_of(options),
        start_seconds=start_seconds,
        dataset_seconds=found.dataset_seconds,
        is_dataset_shared=found.is_shared,
        device_uuid=found.device_uuid,
        device_free_bytes=found.device_free_bytes,
    )


def _wanted(options: SearchOptions, file: search_space.SpaceFile) -> Wanted:
    """Return the requests of a search to the profiling run of a script."""

    def knobs(today: TrainingConfig) -> Sequence[str]:
        offered = [name for name in BATCH_KNOBS if name in file.offers]
        # A batch that is held needs both, whichever of them the space offers.
        if offered and options.workload.held_batch(today) is not None:
            return BATCH_KNOBS
        return [name for name in offered if name == "batch_size"]

    offers, budget = file.own.offers, time_budget_of(options)
    return Wanted(
        calls=tuple(words_of("calls", offers)),
        loss_seconds=script_loss.loss_seconds(options.workload.called, file, budget),
        flags={word: file.position(name) for word, name in words_of("flags", offers).items()},
        knobs=knobs,
        deadline_seconds=options.budget.trial_timeout_seconds,
        to_loss=options.objective.to_loss,
    )
