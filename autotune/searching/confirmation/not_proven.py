"""Faster trials that the answer names beside the result, with why they are not the result."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import fmean

from autotune.accuracy.accuracy_verdict import SEEDS, AccuracyProber, decision_so_far
from autotune.configuration.constraints import AccuracyRule
from autotune.configuration.evidence import NotConfirmed, NotProven
from autotune.configuration.training_config import TrainingConfig
from autotune.study.finished import FinishedTrial
from autotune.values.text import readable


def not_proven(prober: AccuracyProber, rule: AccuracyRule, won: FinishedTrial) -> list[NotProven]:
    """Return the fastest trial of each undecided training that is faster than the result."""
    trials = [one for one in prober.study.finished() if _worth(one) > _worth(won)]
    trials.sort(key=_worth, reverse=True)
    found: dict[str, NotProven] = {}
    for trial in trials:
        training = prober.training_equivalent(trial.config).quality_key()
        known = prober.study.notes.qualities.get(training, ())
        # The time may have ended before the baseline had the last seeds, too.
        qualities = known[: len(rule.baseline)]
        if training in found or len(qualities) < len(SEEDS):
            continue
        if decision_so_far(prober.context, prober.study, training) == "undecided":
            bound = rule.bound(qualities)
            found[training] = NotProven(
                trial=trial.number,
                changed=trial.config.differences(prober.context.baseline),
                quality=readable(fmean(qualities)),
                bound=None if bound is None else readable(bound),
                limit=readable(rule.limit(len(qualities))),
                seeds=len(qualities),
            )
    return list(found.values())


def not_confirmed(
    won: FinishedTrial, failed: Iterable[tuple[FinishedTrial, str]], baseline: TrainingConfig
) -> list[NotConfirmed]:
    """Return the failed candidates whose trials were faster than that of the result."""
    return [
        NotConfirmed(trial=one.number, changed=one.config.differences(baseline), reason=reason)
        for one, reason in failed
        if (one.verdict.value or -math.inf) > (won.verdict.value or -math.inf)
    ]


def _worth(trial: FinishedTrial) -> float:
    """Return a trial's worth by the objective; minus infinity if another limit refuses it."""
    margins, value = trial.verdict.margins, trial.verdict.value
    others = (margin for name, margin in margins.items() if name != "accuracy")
    return -math.inf if value is None or any(one > 0 for one in others) else value
