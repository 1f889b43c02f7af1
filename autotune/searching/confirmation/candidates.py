"""Candidates: the trials to confirm at the end of a search, and which of them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.sampling.acquisition import Acquisition, Observations
from autotune.sampling.encoding import Encoding
from autotune.sampling.posterior import Posterior
from autotune.searching.confirmation.compile_costs import ColdCosts
from autotune.searching.run.search_run import Accuracy, SearchRun
from autotune.study.study import FinishedTrial


@dataclass(frozen=True)
class Candidate:
    """A trial with the posterior of its worth by the objective, from all trials."""

    trial: FinishedTrial
    posterior: Posterior


def candidates(search: SearchRun, accuracy: Accuracy, costs: ColdCosts) -> list[Candidate]:
    """Return the feasible trials with a posterior above the baseline's, the fastest first.

    Trials that were stopped early or too slow to be probed are included, because the faster ones
    may be refused. Trials that probes show to be less accurate are not.
    """
    measured = [t for t in search.study.finished() if t.details.samples_per_second is not None]
    worths = {trial.number: worth(search, costs, trial, _rate(trial)) for trial in measured}
    feasible = [
        trial
        for trial in measured[1:]
        if trial.verdict.feasible
        and "unsteady" not in (trial.details.flags or ())
        and not accuracy.prober.speaks_against(trial.config)
    ]
    if not feasible:
        return []
    encoding = Encoding(search.context.space)
    seen = Observations(
        encoding.rows([trial.config for trial in measured]),
        np.array([worths[trial.number] for trial in measured]),
        [trial.verdict.feasible for trial in measured],
        [False] * len(measured),
    )
    rows = encoding.rows([search.baseline.config, *(trial.config for trial in feasible)])
    own, *posteriors = Acquisition(encoding, seen).posteriors(rows)
    found = (
        Candidate(t, b) for t, b in zip(feasible, posteriors, strict=True) if b.mean > own.mean
    )
    return sorted(found, key=lambda one: -one.posterior.mean)


def contenders(pool: Sequence[Candidate]) -> list[Candidate]:
    """Return the first candidate, and those that are not clearly slower."""
    return [one for one in pool if not one.posterior.is_clearly_below(pool[0].posterior)]


def worth(search: SearchRun, costs: ColdCosts, trial: FinishedTrial, rate: float) -> float:
    """Return a trial's worth by the objective at `rate`, with the cost of compiling cold.

    Two trials that compile the same code are charged alike, whichever of them came first.
    """
    return search.context.objective.worth(rate, costs.fixed_seconds_of(trial))


def _rate(trial: FinishedTrial) -> float:
    return (trial.details.samples_per_second or 0.0) / (trial.details.machine_speed or 1.0)
