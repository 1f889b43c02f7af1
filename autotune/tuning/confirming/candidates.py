"""Which trials are put to the test at the end of a search, and which of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.tuning.confirming.belief import Belief
from autotune.tuning.judging.costs import ColdCosts
from autotune.tuning.sampling.encoding import Encoding
from autotune.tuning.sampling.promise import Promise, Seen
from autotune.tuning.session import Accuracy, Session
from autotune.tuning.storing.study import FinishedTrial


@dataclass(frozen=True)
class Candidate:
    """A trial with what all trials together tell of what it is worth by the objective."""

    trial: FinishedTrial
    belief: Belief


def candidates(session: Session, accuracy: Accuracy, costs: ColdCosts) -> list[Candidate]:
    """Feasible trials that are believed to be faster than the baseline, the fastest first.

    What was too slow to be probed or timed to the end is among them: what was faster may not hold.
    What probes spoke against is not.
    """
    measured = [t for t in session.study.finished() if "samples_per_second" in t.details]
    worths = {trial.number: worth(session, costs, trial, _rate(trial)) for trial in measured}
    feasible = [
        trial
        for trial in measured[1:]
        if trial.verdict.feasible
        and "unsteady" not in trial.details.get("flags", ())
        and not accuracy.prober.speaks_against(trial.config)
    ]
    if not feasible:
        return []
    encoding = Encoding(session.scene.space)
    seen = Seen(
        encoding.rows([trial.config for trial in measured]),
        np.array([worths[trial.number] for trial in measured]),
        [trial.verdict.feasible for trial in measured],
        [False] * len(measured),
    )
    rows = encoding.rows([session.baseline.config, *(trial.config for trial in feasible)])
    own, *beliefs = Promise(encoding, seen).beliefs(rows)
    found = (Candidate(t, b) for t, b in zip(feasible, beliefs, strict=True) if b.mean > own.mean)
    return sorted(found, key=lambda one: -one.belief.mean)


def contenders(pool: Sequence[Candidate]) -> list[Candidate]:
    """The first, and those of whom nobody can tell that they are slower."""
    return [one for one in pool if not one.belief.is_clearly_below(pool[0].belief)]


def worth(session: Session, costs: ColdCosts, trial: FinishedTrial, rate: float) -> float:
    """At that rate, as if it had compiled itself: which of two was the first to is chance."""
    return session.scene.objective.worth(rate, costs.fixed_seconds_of(trial))


def _rate(trial: FinishedTrial) -> float:
    return float(trial.details["samples_per_second"] / trial.details.get("machine_speed", 1.0))
