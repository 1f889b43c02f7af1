"""What leads a search is proven to train as well as the baseline, the longer it leads the more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from autotune.outcome import Failure, Lost, describe
from autotune.tuning.events import LeadLost
from autotune.tuning.judging.accuracy import SEED_SECONDS, AccuracyVerdict
from autotune.tuning.judging.seeds import MOST_SEEDS, SEEDS
from autotune.tuning.reserve import trial_seconds
from autotune.tuning.sampling.samplers import AUTO
from autotune.tuning.session import Accuracy, Session
from autotune.tuning.storing.finished import TRAINED_AS, alone
from autotune.tuning.storing.study import FinishedTrial, best_feasible

_FAILED = 1.0
# Of a search. What leads then is most likely to be the answer, which has to be proven anyway; where
# it does not hold, half of the trials are left to find another.
_LATE = 1 / 2


def proves_late(session: Session) -> bool:
    """Whether trials may be told first and overruled afterwards.

    Optuna's own samplers see what a trial was told, and nothing later.
    """
    return session.scene.options.sampler == AUTO


def prove_lead(session: Session, accuracy: Accuracy, trial: FinishedTrial) -> Iterator[LeadLost]:
    """Probe what leads after `trial`, as far as trials relied on it for as long as that takes.

    What is not accurate enough leads no longer, nor does any trial that was trained alike; then the
    next one has to hold.
    """
    if not proves_late(session):
        return
    others = (one for one in session.study.finished() if one.number != trial.number)
    led_by = best_feasible(others)
    if led_by is not None:
        accuracy.reliance.follow(_trained_as(accuracy, led_by), trial_seconds(trial))
    with session.adding_seconds("proving"):
        while (best := best_feasible(session.study.finished())) is not None:
            found = _proven(session, accuracy, best)
            if isinstance(found, Lost) or _holds(found):
                return
            yield _overruled(session, best, found)


def _proven(session: Session, accuracy: Accuracy, best: FinishedTrial) -> AccuracyVerdict | Failure:
    """What is known of a trial's accuracy after as many seeds as were paid for."""
    prober = accuracy.prober
    found = prober.verdict(best.config, most_seeds=1)
    while isinstance(found, AccuracyVerdict) and found.decision == "undecided":
        seeds = len(found.qualities)
        # One or two seeds that speak against it may be chance.
        in_doubt = found.margin > 0 and seeds < len(SEEDS)
        if seeds == MOST_SEEDS or not (in_doubt or _pays(session, accuracy, best, seeds)):
            break
        found = prober.verdict(best.config, seeds + 1)
    return found


def _pays(session: Session, accuracy: Accuracy, best: FinishedTrial, seeds: int) -> bool:
    """Whether one more seed is paid for, and those of the baseline that are missing beside it."""
    if session.spent() >= _LATE:
        return True
    known = accuracy.prober.known_seeds(session.scene.baseline)
    missing = max(0, seeds + 1 - known)
    price = _seconds_of_a_seed(session, accuracy) * (1 + missing)
    return accuracy.reliance.pays(_trained_as(accuracy, best), price)


def _seconds_of_a_seed(session: Session, accuracy: Accuracy) -> float:
    """What one took; in a study that did not note that, an estimate."""
    rate = session.baseline.details["samples_per_second"]
    estimate = accuracy.prober.samples / rate + session.scene.start_seconds
    return float(session.study.noted(SEED_SECONDS, estimate))


def _holds(found: AccuracyVerdict | Failure) -> bool:
    return isinstance(found, AccuracyVerdict) and found.margin <= 0


def _overruled(
    session: Session, trial: FinishedTrial, found: AccuracyVerdict | Failure
) -> LeadLost:
    """Take the lead from a trial: with all that were trained alike, where seeds say so.

    A gate tells of settings that a probe does not have, and a failure of what was run.
    """
    if isinstance(found, AccuracyVerdict):
        margin, reason = found.margin, found.reason
    else:
        margin, reason = _FAILED, f"accuracy probe: {describe(found)}"
    by_seeds = isinstance(found, AccuracyVerdict) and found.qualities
    of_all = trial.details.get(TRAINED_AS) if by_seeds else None
    session.study.overrule(cast(str, of_all or alone(trial.number)), margin, reason)
    best = best_feasible(session.study.finished()) or session.baseline
    return LeadLost(trial, reason, best, session.baseline)


def _trained_as(accuracy: Accuracy, trial: FinishedTrial) -> str:
    return accuracy.prober.trained_as(trial.config).quality_key()
