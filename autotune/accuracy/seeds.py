"""Accuracy seeds: the decision on the known ones, the missing number, and when one is worth it.

Nothing here runs a process. Searches use it to plan.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from autotune.configuration.accuracy_rule import AccuracyRule
from autotune.context.search_context import SearchContext
from autotune.study.study import TuningStudy
from autotune.values.statistics import LOOKS, Decision

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
