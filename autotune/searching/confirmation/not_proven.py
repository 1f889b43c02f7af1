"""Faster trials whose accuracy the seeds left undecided, for the answer to name."""

from __future__ import annotations

import math
from statistics import fmean

from autotune.accuracy.accuracy_verdict import AccuracyProber
from autotune.accuracy.seeds import SEEDS, decision_so_far
from autotune.configuration.accuracy_evidence import NotProven
from autotune.configuration.accuracy_rule import AccuracyRule
from autotune.storage.finished_trial import FinishedTrial
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


def _worth(trial: FinishedTrial) -> float:
    """Return a trial's worth by the objective; minus infinity if another limit refuses it."""
    margins, value = trial.verdict.margins, trial.verdict.value
    others = (margin for name, margin in margins.items() if name != "accuracy")
    return -math.inf if value is None or any(one > 0 for one in others) else value
