"""What leads a search is proven to train as well as the baseline, the longer it leads the more."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.tuning.events import LeadLost
from autotune.tuning.judging.accuracy import MOST_SEEDS, SEEDS, AccuracyVerdict
from autotune.tuning.sampling.samplers import AUTO
from autotune.tuning.session import Accuracy, Session
from autotune.tuning.storing.study import FinishedTrial, best_feasible


def proves_late(session: Session) -> bool:
    """Whether trials may be told first and overruled afterwards.

    Optuna's own samplers see what a trial was told, and nothing later.
    """
    return session.scene.options.sampler == AUTO


def prove_lead(session: Session, accuracy: Accuracy, seconds: float) -> Iterator[LeadLost]:
    """Probe what leads after a trial of so many seconds, as far as it was relied on for as long.

    What is not accurate enough leads no longer, and no trial that was trained alike does.
    """
    best = best_feasible(session.study.finished())
    if best is None or not proves_late(session):
        return
    prober, rule = accuracy.prober, accuracy.rule
    trained_as = prober.trained_as(best.config).quality_key()
    accuracy.reliance.follow(trained_as, seconds)
    found = prober.verdict(rule, best.config, most_seeds=1)
    while isinstance(found, AccuracyVerdict) and found.decision == "undecided":
        seeds = len(found.qualities)
        price = _seconds_of_a_seed(session, accuracy, seeds)
        # One or two seeds that speak against it may be chance.
        in_doubt = found.margin > 0 and seeds < len(SEEDS)
        if not in_doubt and (seeds == MOST_SEEDS or not accuracy.reliance.pays(trained_as, price)):
            break
        found = prober.verdict(rule, best.config, seeds + 1)
    if isinstance(found, AccuracyVerdict) and found.margin > 0:
        session.study.overrule(trained_as, found.margin, found.reason)
        yield _lost(session, best, found.reason)


def _lost(session: Session, trial: FinishedTrial, reason: str) -> LeadLost:
    best = best_feasible(session.study.finished()) or session.baseline
    return LeadLost(trial, reason, best, session.baseline)


def _seconds_of_a_seed(session: Session, accuracy: Accuracy, seeds: int) -> float:
    """An estimate for one more seed, and for the same of the baseline where that is not known."""
    rate = session.baseline.details["samples_per_second"]
    a_seed = accuracy.prober.samples / rate + session.scene.start_seconds
    return float(a_seed * (1 if seeds < accuracy.prober.known_seeds(session.scene.baseline) else 2))
