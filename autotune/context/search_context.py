"""Context of a search: machine, workload, baseline, search space and limits.

It is determined once, before the first trial, and does not change during the search.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from autotune.configuration import search_space
from autotune.configuration.constraints import Objective
from autotune.configuration.job import Job, Task
from autotune.configuration.mismatch import sha256_of
from autotune.configuration.script import Judge
from autotune.configuration.training_config import TrainingConfig, lr_factor
from autotune.context import ranks, script_loss
from autotune.context.inspection import inspect_workload, observation, observe
from autotune.context.options import SearchOptions, time_budget_of
from autotune.context.own_knobs import as_found, calls_in, check_own_knobs, with_preset
from autotune.context.script_ways import call, reachable, with_maps
from autotune.process.common.trial_folder import make_private
from autotune.process.runner import Runner
from autotune.study.identity import FORMAT
from autotune.values.machine import Machine
from autotune.values.outcome import Observed, WorkloadFacts


@dataclass(frozen=True, slots=True)
class SearchContext:
    """The context of one search, which does not change while it runs."""

    options: SearchOptions
    machine: Machine
    facts: WorkloadFacts
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
    observed: Observed | None = None
    """Observation of the unmodified script; None for a model.py."""
    device_uuid: str = ""
    """UUID of the accelerator; empty if torch does not report it."""
    device_free_bytes: int | None = None
    """Memory of the accelerator that was free before the search; None if not known."""

    @property
    def processes(self) -> int:
        """Processes that train together in each trial."""
        return self.options.resources.processes

    @property
    def counts_samples(self) -> bool:
        """False if a script's samples are unknown, so that each of its steps counts as one."""
        return self.observed is None or self.observed.counts_samples

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
        """The objective, which is maximised."""
        found = self.options.objective.for_workload(self.facts)
        return found if self.counts_samples else replace(found, unit=self.rate_unit)

    @property
    def judge(self) -> Judge:
        """The quality by which trainings are judged."""
        return self.options.workload.judge(self.facts)

    @property
    def identity(self) -> dict[str, object]:
        """Facts that must not change while a study goes on, as JSON values."""
        workload = self.options.workload
        modules = {"modules": self.facts.local_modules} if self.facts.local_modules else {}
        effects = {"effects": dict(self.space.effects)} if self.space.effects else {}
        held = self.space.effective_batch
        return {
            **({} if workload.script is None else workload.script.facts),
            "model_sha256": sha256_of(workload.model_path),
            **modules,
            "space": {name: list(values) for name, values in self.space.domains.items()},
            **({} if held is None else {"effective_batch": held}),
            **effects,
            "baseline": self.baseline.as_dict(),
            "objective": self.objective.identity,
            "memory_limit_bytes": self.memory_limit_bytes,
            "accuracy": self.options.accuracy.identity,
            "lr_scaling": workload.lr_scaling,
            "machine": self.machine.fingerprint,
            **({} if self.processes == 1 else {"processes": self.processes}),
            **({} if self.counts_samples else {"unit": "steps"}),
            "format": FORMAT,
        }

    def lr_factor(self, config: TrainingConfig) -> float:
        """Return the factor by which `config` multiplies the baseline's learning rates."""
        rule, own = self.options.workload.lr_scaling, self.baseline.effective_batch
        return lr_factor(rule, config.effective_batch, own)

    def job(self, task: Task, config: TrainingConfig, deadline_seconds: float | None = None) -> Job:
        """Return a job of this search; its deadline is `trial_timeout_seconds` by default."""
        workload, script, seen = self.options.workload, self.options.workload.script, self.observed
        all_train = ranks.is_of_all(task, config)
        config = config if all_train else config.alone
        job = Job(
            task=task,
            device=self.machine.device,
            model_path=str(workload.model_path.resolve()),
            script=call(script, seen, config) if script and seen else None,
            config=config.as_dict(),
            seed=self.options.sampling.seed,
            lr_factor=self.lr_factor(config),
            memory_limit_bytes=self.memory_limit_bytes,
            host_limit_bytes=self.options.resources.host_bytes_per_trial(self.machine),
            deadline_seconds=deadline_seconds or self.options.budget.trial_timeout_seconds,
            count_tokens=self.facts.counts_tokens,
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
    ranks.check_room(options.resources)
    file = search_space.read_space(search_space.find_space(options.sampling.space))
    file = with_preset(file, options.workload.script)
    check_own_knobs(file, options.workload)
    ranks.check_held(options)
    if folder is None:
        make_private(options.study.folder)
        folder = options.study.folder / "trials" / "inspect"
    options, observed, notes = _observed(options, runner, folder, file)
    inspected, start_seconds = inspect_workload(
        options.workload,
        options.resources,
        observed,
        runner,
        folder,
        options.budget.trial_timeout_seconds,
    )
    options = ranks.with_ranks(options, observed or inspected)
    facts, workload = inspected.workload, options.workload
    assert facts is not None
    options.accuracy.check(facts, workload.model_path)
    options.objective.for_workload(facts)
    file, found = as_found(file, workload, facts)
    baseline = workload.own_settings(facts, found)
    if facts.comm_dtypes is None:
        baseline = baseline.alone
    baseline = baseline.resolved(inspected.machine)
    if baseline["deterministic"]:  # as --deterministic asks
        facts = replace(facts, fills_memory=True)
    held = ranks.held_by_each(options, baseline)
    if observed is not None:
        options = script_loss.judging_batches(
            options, file, observed, baseline, runner, folder / "batches"
        )
        assert options.workload.script is not None
        file, kept = reachable(
            file, options.workload.script, observed, options.resources.processes, held is not None
        )
        notes = (*notes, *kept)
    file, lost = ranks.space_of_each(file, options, inspected.machine, facts.dataset_samples, held)
    space = search_space.narrow(file, inspected.machine, facts, baseline, held).noted(
        (*notes, *lost)
    )
    return SearchContext(
        options=script_loss.without_needless_loss(options, space),
        machine=inspected.machine,
        facts=facts,
        baseline=baseline,
        space=space,
        trials=options.budget.trials or file.trials,
        memory_limit_bytes=options.resources.bytes_per_trial(inspected.machine),
        time_budget_seconds=time_budget_of(options),
        start_seconds=start_seconds,
        dataset_seconds=inspected.dataset_seconds,
        is_dataset_shared=inspected.is_shared,
        observed=observed,
        device_uuid=inspected.device_uuid,
        device_free_bytes=inspected.device_free_bytes,
    )


def _observed(
    options: SearchOptions, runner: Runner, folder: Path, file: search_space.SpaceFile
) -> tuple[SearchOptions, Observed | None, tuple[str, ...]]:
    """Observe the unmodified script; without one, nothing is observed.

    Returns:
        The options, with the script's loss as the judge if it can be, and with maps for the flags
        that the script was seen to have; the observation; and notes on the maps.

    Raises:
        UsageError: a flag is named that the script does not have.
    """
    workload, deadline = options.workload, options.budget.trial_timeout_seconds
    script = workload.script
    if script is None:
        return options, None, ()
    script = replace(script, watched=calls_in(file.own.offers))
    seconds = script_loss.loss_seconds(script, file, time_budget_of(options))
    job = options.resources.started(observation(workload.model_path, script, deadline))
    observed = observe(runner, job, folder / "script", seconds)
    mapped, notes = with_maps(workload, script_loss.judging(script, observed), file, observed)
    return replace(options, workload=mapped), observed, notes
