"""By which seeds a kind of training is judged, and what those that are known prove already.

Nothing here runs anything: it is what a search plans with.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.constraints import AccuracyRule
from autotune.non_inferiority import Decision
from autotune.tuning.scene import Scene
from autotune.tuning.storing.finished import QUALITIES
from autotune.tuning.storing.study import TuningStudy

SEEDS = (0, 1, 2)
"""Of the baseline, and at most of a trial during the search."""
MOST_SEEDS = 6
"""Of what leads the search, or is about to be the answer."""


def rule_from(scene: Scene, baseline: Sequence[float]) -> AccuracyRule:
    """The rule of this search, where the baseline reaches so much, one value per seed."""
    metric, higher_is_better = scene.metric
    return AccuracyRule(
        metric=metric,
        higher_is_better=higher_is_better,
        baseline=tuple(baseline),
        tolerance=scene.options.accuracy_tolerance.absolute(baseline[: len(SEEDS)]),
        minimum=scene.options.min_accuracy,
    )


def decision_so_far(scene: Scene, study: TuningStudy, trained_as: str) -> Decision:
    """What is proven of a kind of training by the seeds that are known of it and of the baseline.

    Nothing is on fewer than `SEEDS`.
    """
    own, theirs = _known(scene, study, trained_as)
    if trained_as == scene.baseline.quality_key():
        return "accept"
    if not len(SEEDS) <= len(theirs) <= len(own):
        return "undecided"
    return rule_from(scene, own).decision(theirs)


def seeds_to_come(scene: Scene, study: TuningStudy, trained_as: str) -> int:
    """At most, until it is decided whether a kind of training may be the answer.

    Those of the baseline beside it are counted, too.
    """
    if decision_so_far(scene, study, trained_as) != "undecided":
        return 0
    own, theirs = _known(scene, study, trained_as)
    wanted = len(SEEDS) if len(theirs) < len(SEEDS) else MOST_SEEDS
    return max(0, wanted - len(own)) + max(0, wanted - len(theirs))


def _known(
    scene: Scene, study: TuningStudy, trained_as: str
) -> tuple[Sequence[float], Sequence[float]]:
    """Qualities of the baseline and of a kind of training, one per seed."""
    known: dict[str, Sequence[float]] = study.noted(QUALITIES, {})
    return known.get(scene.baseline.quality_key(), ()), known.get(trained_as, ())
