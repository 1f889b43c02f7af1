"""Accuracy seeds: the decision on the known ones, the missing number, and when one is worth it.

Nothing here runs a process. Searches use it to plan.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from autotune.configuration.constraints import AccuracyRule
from autotune.context.search_context import SearchContext
from autotune.study.study import TuningStudy
from autotune.values.statistics import LOOKS, Decision

_SECONDS = 6.0
"""Seconds that the baseline trains in a probe.

Shorter probes judge the first updates only, in which larger batches always look worse.
"""
_FEWEST_SECONDS = 3.0
# Largest share of a short time budget for one seed: a result takes six seeds or more.
_SHARE = 1 / 40
_FEWEST_BASELINE_STEPS = 30
_MOST_SECONDS = 60.0
# Largest share of a time budget for one seed of a script whose loss falls late.
_LATE_SHARE = 1 / 15


def probe_seconds(context: SearchContext) -> float:
    """Return the approximate seconds that the baseline trains in a probe."""
    seen = context.observed
    if seen is None or not seen.samples_per_second:
        return _usual_seconds(context)
    until = _fell_after(context) / seen.samples_per_second
    return max(_usual_seconds(context), min(until, _most_late(context)))


def _usual_seconds(context: SearchContext) -> float:
    if context.time_budget_seconds is None:
        return _SECONDS
    return min(_SECONDS, max(_FEWEST_SECONDS, _SHARE * context.time_budget_seconds))


def seed_seconds(context: SearchContext, study: TuningStudy) -> float:
    """Return the seconds of an accuracy seed of the baseline, or an estimate before the first."""
    known = study.notes.seed_seconds
    return probe_seconds(context) if known is None else known


def probe_samples(context: SearchContext, samples_per_second: float) -> int:
    """Return the samples that every probe trains on: some seconds of the baseline's training.

    A script trains until its loss had fallen when it was observed, if the time budget has room.
    The number is a multiple of all effective batches if that fits, or else of the largest one or
    of the baseline's. Those that do not divide it end with a smaller batch.
    """
    baseline_batch = context.baseline.effective_batch
    enough = _FEWEST_BASELINE_STEPS * baseline_batch
    affordable = math.ceil(_MOST_SECONDS * samples_per_second)
    wanted = max(
        math.ceil(_usual_seconds(context) * samples_per_second),
        min(enough, affordable),
        min(_fell_after(context), math.ceil(_most_late(context) * samples_per_second)),
    )
    sizes = context.space.effective_batches
    fitting = [unit for unit in (math.lcm(*sizes), max(sizes)) if unit <= wanted]
    unit = fitting[0] if fitting else baseline_batch
    return math.ceil(wanted / unit) * unit


def _most_late(context: SearchContext) -> float:
    """Return the most seconds of a seed whose loss falls late."""
    return min(_MOST_SECONDS, _LATE_SHARE * (context.time_budget_seconds or math.inf))


def _fell_after(context: SearchContext) -> int:
    """Return the samples after which the loss of an observed script had fallen; 0 if unknown."""
    loss = None if context.observed is None else context.observed.loss
    return (loss and loss.fell_after) or 0


SEEDS = tuple(range(LOOKS[0]))
"""Seeds of the baseline; a trial that is not the incumbent gets at most these."""
INCUMBENT_SEEDS = LOOKS[1]
"""Most seeds for an incumbent, while trials run."""
MOST_SEEDS = LOOKS[-1]
"""Most seeds for a possible result, where they may decide and the time suffices."""


def rule_from(
    context: SearchContext, baseline: Sequence[float], untrained: float | None
) -> AccuracyRule:
    """Return the accuracy rule of a search.

    Args:
        context: the context of the search.
        baseline: the baseline's qualities, one per seed.
        untrained: the first seed's loss before training; None if it is not known.
    """
    metric, higher_is_better = context.metric
    first = baseline[: len(SEEDS)]
    return AccuracyRule(
        metric=metric,
        higher_is_better=higher_is_better,
        baseline=tuple(baseline),
        tolerance=context.options.accuracy.tolerance.absolute(first, untrained),
        minimum=context.options.accuracy.minimum,
    )


def decision_so_far(
    context: SearchContext, study: TuningStudy, training_equivalent: str
) -> Decision:
    """Return the decision on a training from its known seeds and the baseline's.

    It is undecided on fewer seeds than `SEEDS`. `training_equivalent` is the text that equivalent
    trainings share.
    """
    own, theirs = _known(context, study, training_equivalent)
    if training_equivalent == context.baseline.quality_key():
        return "accept"
    if not len(SEEDS) <= len(theirs) <= len(own):
        return "undecided"
    return rule_from(context, own, study.notes.untrained).decision(theirs)


def next_look(context: SearchContext, study: TuningStudy, training_equivalent: str) -> int:
    """Return the number of seeds at which a training may be decided next; 0 if at none."""
    if decision_so_far(context, study, training_equivalent) != "undecided":
        return 0
    own, theirs = _known(context, study, training_equivalent)
    if not len(SEEDS) <= len(theirs) <= len(own):
        return next(look for look in LOOKS if look >= len(theirs))
    wanted = rule_from(context, own, study.notes.untrained).seeds_wanted(theirs)
    return wanted if wanted > len(theirs) else 0


def seeds_until(
    context: SearchContext, study: TuningStudy, training_equivalent: str, look: int
) -> int:
    """Return the seeds that a training and the baseline lack until `look` of each are known."""
    known = _known(context, study, training_equivalent)
    return sum(max(0, look - len(qualities)) for qualities in known)


def _known(
    context: SearchContext, study: TuningStudy, training_equivalent: str
) -> tuple[Sequence[float], Sequence[float]]:
    """Return the qualities of the baseline and of a training, one per seed."""
    known = study.notes.qualities
    return known.get(context.baseline.quality_key(), ()), known.get(training_equivalent, ())


class SeedBudget:
    """Seconds of trials run under incumbents of equivalent training, since their last seed.

    A search follows its incumbent, though one seed shows little of its accuracy. Validating every
    incumbent at once takes minutes if they change often; a wrong incumbent may cost the whole
    search. An incumbent therefore gets a further seed after trials of as many seconds as the seed
    takes. This costs at most twice as much as with known lifetimes of all incumbents (the ski
    rental problem; Karlin et al., Competitive snoopy caching, Algorithmica 3, 1988).

    `training_equivalent` is the text that equivalent trainings share.
    """

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def follow(self, training_equivalent: str, seconds: float) -> None:
        """Add the seconds of a trial that ran while the incumbent was of this training."""
        self._seconds[training_equivalent] += seconds

    def pays(self, training_equivalent: str, price: float) -> bool:
        """Spend `price` seconds; return False and spend nothing if there are fewer."""
        if self._seconds[training_equivalent] < price:
            return False
        self._seconds[training_equivalent] -= price
        return True
