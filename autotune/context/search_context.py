"""Context of a search: machine, workload, baseline, search space and limits.

It is determined once, before the first trial, and does not change during the search.

A script's own training loss compares settings that keep the samples of a backward pass if it falls.
It compares other batch sizes if the first loss of another size, with the same seed, is the same: a
mean over the samples, not a sum, nor a loss that compares samples of a batch with each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import stdev
from typing import Literal

from autotune.configuration import search_space
from autotune.configuration.constraints import UNNOTICED, Objective
from autotune.configuration.job import Job, TakeFirstSteps, Task
from autotune.configuration.mismatch import sha256_of
from autotune.configuration.script import Judge, ScriptOptions, is_harmless
from autotune.configuration.training_config import BATCH_KNOBS, TrainingConfig, lr_factor, render
from autotune.context import ranks
from autotune.context.inspection import look
from autotune.context.options import SearchOptions, time_budget_of
from autotune.context.script_ways import Wanted
from autotune.context.workload import Traits, as_found, check_own_knobs, with_preset, words_of
from autotune.knobs import knob_named
from autotune.knobs.base import Value
from autotune.process.common.trial_folder import make_private
from autotune.process.runner import Runner
from autotune.study.facts import FORMAT
from autotune.values import outcome as outcomes
from autotune.values.errors import UsageError
from autotune.values.machine import Machine

# A script's loss is watched for so many seconds at least.
_FEWEST_SECONDS = 3.0
# Steps with the other batch size: the first loss is compared; the second step shows accumulation.
_OTHER_STEPS = 2
# Factor by which the other batch size should differ: a loss over pairs grows with its logarithm.
_FACTOR = 4
_DEVIATIONS = 3
# Share of the larger loss by which chance may explain a difference; a sum is off by a half or more.
_MOST_BY_CHANCE = 0.45


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
    def facts(self) -> outcomes.WorkloadFacts:
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
        _check_followed(workload.called.judge)
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
    traits = _judging_batches(traits, options, file, baseline, runner, folder / "batches")
    file, kept = traits.narrowed(file, options.resources.processes, held is not None)
    samples = traits.facts.dataset_samples
    file, lost = ranks.space_of_each(file, options, found.machine, samples, held)
    space = search_space.narrow(file, found.machine, traits.facts, baseline, held)
    judge = _needed(traits.judge, space)
    if objective.to_loss:
        _check_followed(judge)
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
        loss_seconds=loss_seconds(options.workload.called, file, budget),
        flags={word: file.position(name) for word, name in words_of("flags", offers).items()},
        knobs=knobs,
        deadline_seconds=options.budget.trial_timeout_seconds,
        to_loss=options.objective.to_loss,
    )


def loss_seconds(
    script: ScriptOptions, file: search_space.SpaceFile, budget: float | None
) -> float:
    """Return the seconds in which the loss of an observed script should fall; 0 to ignore it."""
    own = file.own.effects
    changes_training = any(
        own[name] != "exact" if name in own else not is_harmless(knob_named(name))
        for name in file.offers
    )
    if script.judge.by != "training_loss" or not changes_training:
        return 0.0
    if budget is None:
        return outcomes.LOSS_SECONDS
    return min(outcomes.LOSS_SECONDS, max(_FEWEST_SECONDS, outcomes.LOSS_SHARE * budget))


def _judging_batches(
    traits: Traits,
    options: SearchOptions,
    file: search_space.SpaceFile,
    baseline: TrainingConfig,
    runner: Runner,
    folder: Path,
) -> Traits:
    """Return the traits with how a script's loss of other batch sizes is read, or refused."""
    script, seen = traits.script, traits.seen
    mapped = [flag.knob for flag in script.flags if flag.knob in BATCH_KNOBS]
    if traits.judge.loss is None or seen.loss is None or not mapped:
        return traits
    own, most = int(baseline["batch_size"] or 1), traits.facts.dataset_samples
    offers = {name: file.offers.get(name, ()) if name in mapped else () for name in BATCH_KNOBS}
    apart = {
        config: abs(math.log(size / (_FACTOR * own)))
        for config in _candidates(baseline, offers, ranks.held_by_each(options, baseline))
        if (size := int(config["batch_size"] or 1)) <= (most or size)
    }
    if not apart:
        return traits
    other = min(apart, key=apart.__getitem__)
    job = Job(
        TakeFirstSteps(_OTHER_STEPS),
        device="auto",
        model_path=str(options.workload.model_path.resolve()),
        config=other.as_dict(),
        script=script.call(other),
        deadline_seconds=options.budget.trial_timeout_seconds,
    )
    outcome = runner.run(options.resources.started(job), folder)
    settings = render(other.differences(baseline))
    if not isinstance(outcome, outcomes.FirstLosses):
        failed = outcomes.describe(outcomes.as_failure(outcome))
        return replace(traits, refusal=f"{settings} fails: {failed}")
    readings: tuple[Literal["mean", "sum"], ...] = ("mean", "sum")
    for loss in readings:
        if _agrees(seen.loss, outcome, as_sum=loss == "sum"):
            return replace(traits, judge=replace(traits.judge, loss=loss))
    advice = "" if options.objective.to_loss else ": use --metric-regex"
    return replace(
        traits,
        refusal=f"the first loss goes from {seen.loss.first[0]:.4g} to {outcome.losses[0]:.4g} "
        f"with {settings}, so it is not a per-sample mean{advice}",
    )


def _candidates(
    baseline: TrainingConfig, offers: Mapping[str, Sequence[Value]], held: int | None
) -> Iterator[TrainingConfig]:
    """Yield the offered batches; `held` are the samples of every step, None if these vary."""
    sizes, counts = (offers[name] or (baseline[name],) for name in BATCH_KNOBS)
    for size in (int(size or 1) for size in sizes):
        if held is not None:
            counts = (held // size,) if held % size == 0 else ()
        other = [count for count in counts if count != baseline["accumulation_steps"]]
        for count in other or counts:
            config = baseline.replace(batch_size=size, accumulation_steps=count)
            if config != baseline:
                yield config


def _agrees(own: outcomes.ObservedLoss, other: outcomes.FirstLosses, as_sum: bool) -> bool:
    """Return True if the first losses are the same number, the chance of a batch aside."""
    first, found = own.first[0], other.losses[0]
    if as_sum:
        first, found = first * own.backwards_per_step, found * other.backwards_per_step
    # Neighbours show the spread of a batch without the course of training.
    steps = [after - before for before, after in pairwise(own.first)]
    chance = _DEVIATIONS * stdev(steps) / math.sqrt(2) if len(steps) > 1 else 0.0
    most = _MOST_BY_CHANCE * max(abs(first), abs(found))
    allowed = max(UNNOTICED * abs(first), min(chance, most))
    return abs(found - first) <= allowed


def _check_followed(judge: Judge) -> None:
    """Check that the training loss can be followed: of a script it has to be the judge.

    Raises:
        UsageError: it cannot.
    """
    if judge.loss is None and judge.by not in ("evaluate", "held_out_loss"):
        by_metric = "--metric-regex is given" if judge.by == "metric_regex" else ""
        why = by_metric or judge.doubt or "no setting to be tried changes it"
        raise UsageError(
            f"--objective time-to-loss needs the training loss, which cannot be used here: {why}. "
            f"Leave {'one of the two' if by_metric else 'the option'} out."
        )


def _needed(judge: Judge, space: search_space.SearchSpace) -> Judge:
    """Return the judge, without the training loss if nothing is varied that it could judge."""
    is_needed = judge.loss is None or any(
        space.effect(name) != "exact" and not is_harmless(knob_named(name))
        for name in space.varied()
    )
    return judge if is_needed else Judge("nothing")
