"""Decide whether a script's own training loss can compare its trainings.

It compares settings that keep the samples of a backward pass if it falls. It compares other batch
sizes if the first loss of another size, with the same seed, is the same: a mean over the samples,
not a sum, nor a loss that compares samples of a batch with each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
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
from autotune.context.ranks import held_by_each
from autotune.context.workload import Traits
from autotune.knobs import knob_named
from autotune.knobs.base import Value
from autotune.process.runner import Runner
from autotune.values import outcome as outcomes
from autotune.values.errors import UsageError

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


def judging_batches(
    traits: Traits,
    options: SearchOptions,
    file: SpaceFile,
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
        for config in _candidates(baseline, offers, held_by_each(options, baseline))
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


def check_followed(judge: Judge) -> None:
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


def needed(judge: Judge, space: SearchSpace) -> Judge:
    """Return the judge, without the training loss if nothing is varied that it could judge."""
    is_needed = judge.loss is None or any(
        space.effect(name) != "exact" and not is_harmless(knob_named(name))
        for name in space.varied()
    )
    return judge if is_needed else Judge("nothing")
