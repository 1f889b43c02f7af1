"""Decide whether a script's own training loss can compare its trainings.

It compares settings that keep the samples of a backward pass if it falls. It compares other batch
sizes if the first loss of another size, with the same seed, is the same: a mean over the samples,
not a sum, nor a loss that compares samples of a batch with each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import stdev
from typing import Literal

from autotune.configuration.constraints import UNNOTICED
from autotune.configuration.job import Job, TakeFirstSteps
from autotune.configuration.script import Judge, ScriptOptions, is_harmless
from autotune.configuration.search_space import SearchSpace, SpaceFile
from autotune.configuration.training_config import BATCH_KNOBS, TrainingConfig, render
from autotune.context.options import SearchOptions
from autotune.knobs import knob_named
from autotune.process.runner import Runner
from autotune.values.outcome import (
    LOOK_SECONDS,
    LOOK_SHARE,
    FirstLosses,
    Observed,
    ObservedLoss,
    as_failure,
    describe,
)

_FEWEST_SECONDS = 3.0
# Steps with the other batch size: the first loss is compared; the second step shows accumulation.
_OTHER_STEPS = 2
# Factor by which the other batch size should differ: a loss over pairs grows with its logarithm.
_FACTOR = 4
_DEVIATIONS = 3
# Share of the larger loss by which chance may explain a difference; a sum is off by a half or more.
_MOST_BY_CHANCE = 0.45


def loss_seconds(script: ScriptOptions, file: SpaceFile, budget: float | None) -> float:
    """Return the seconds in which the loss of an observed script should fall; 0 to ignore it."""
    if script.keeps_nothing:
        return 0.0
    own = file.own.effects
    changes_training = any(
        own[name] != "exact" if name in own else not is_harmless(knob_named(name))
        for name in file.offers
    )
    if script.metric is not None or script.only_exact or not changes_training:
        return 0.0
    if budget is None:
        return LOOK_SECONDS
    return min(LOOK_SECONDS, max(_FEWEST_SECONDS, LOOK_SHARE * budget))


def judging(script: ScriptOptions, observed: Observed) -> ScriptOptions:
    """Return the options with the training loss as the judge, or why it cannot be."""
    if script.metric is not None or script.only_exact or observed.loss is None:
        return script
    doubt, can_compare = observed.loss.doubt, bool(observed.loss.sums.settled_gradients)
    judge = Judge("training_loss", loss="mean")
    if doubt:
        judge = Judge("gradients" if can_compare else "nothing", doubt=doubt)
    return replace(script, found=judge)


@dataclass(frozen=True)
class OtherBatches:
    """A look at the first losses of a script with another batch size."""

    runner: Runner
    options: SearchOptions
    file: SpaceFile
    held: int | None
    """Samples of every optimizer step, if these are held."""

    @property
    def script(self) -> ScriptOptions:
        """Options of the script that may be judged."""
        script = self.options.workload.script
        assert script is not None
        return script

    def judging(self, observed: Observed, baseline: TrainingConfig, folder: Path) -> ScriptOptions:
        """Return the options with how the loss of other batch sizes is read, or refused."""
        mapped = [flag.knob for flag in self.script.flags if flag.knob in BATCH_KNOBS]
        judge = self.script.judge
        if judge.loss is None or observed.loss is None or not mapped:
            return self.script
        own, most = int(baseline["batch_size"] or 1), observed.workload.dataset_samples
        apart = {
            config: abs(math.log(size / (_FACTOR * own)))
            for config in self._candidates(baseline, mapped)
            if (size := int(config["batch_size"] or 1)) <= (most or size)
        }
        if not apart:
            return self.script
        other = min(apart, key=apart.__getitem__)
        job = Job(
            TakeFirstSteps(_OTHER_STEPS),
            device="auto",
            model_path=str(self.options.workload.model_path.resolve()),
            config=other.as_dict(),
            script=self.script.call(other),
            deadline_seconds=self.options.budget.trial_timeout_seconds,
        )
        outcome = self.runner.run(self.options.resources.started(job), folder)
        settings = render(other.differences(baseline))
        if isinstance(outcome, FirstLosses):
            readings: tuple[Literal["mean", "sum"], ...] = ("mean", "sum")
            for loss in readings:
                if _agrees(observed.loss, outcome, as_sum=loss == "sum"):
                    return replace(self.script, found=replace(judge, loss=loss))
            reason = (
                f"the first loss goes from {observed.loss.first[0]:.4g} to {outcome.losses[0]:.4g} "
                f"with {settings}, so it is not a per-sample mean: use --metric-regex"
            )
        else:
            reason = f"{settings} fails: {describe(as_failure(outcome))}"
        return replace(self.script, refusal=reason)

    def _candidates(self, baseline: TrainingConfig, mapped: list[str]) -> Iterator[TrainingConfig]:
        offered = {
            name: self.file.offers.get(name, ()) if name in mapped else () for name in BATCH_KNOBS
        }
        sizes, counts = (offered[name] or (baseline[name],) for name in BATCH_KNOBS)
        for size in (int(size or 1) for size in sizes):
            if self.held is not None:
                counts = (self.held // size,) if self.held % size == 0 else ()
            other = [count for count in counts if count != baseline["accumulation_steps"]]
            for count in other or counts:
                config = baseline.replace(batch_size=size, accumulation_steps=count)
                if config != baseline:
                    yield config


def _agrees(own: ObservedLoss, other: FirstLosses, as_sum: bool) -> bool:
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


def of_script(options: SearchOptions, script: ScriptOptions) -> SearchOptions:
    """Return the options with other options of the script."""
    return replace(options, workload=replace(options.workload, script=script))


def without_needless_loss(options: SearchOptions, space: SearchSpace) -> SearchOptions:
    """Return the options without the loss as a judge if nothing is varied that it could judge."""
    script = options.workload.script
    if script is None or script.judge.loss is None:
        return options
    if any(
        space.effect(name) != "exact" and not is_harmless(knob_named(name))
        for name in space.varied()
    ):
        return options
    return of_script(options, replace(script, found=Judge("nothing")))
