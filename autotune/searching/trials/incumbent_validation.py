"""Validation of incumbents: the longer a trial is the incumbent, the more seeds it gets."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from autotune.accuracy.accuracy_verdict import INCUMBENT_SEEDS, SEEDS, AccuracyVerdict
from autotune.sampling.samplers import AUTO
from autotune.searching.run.events import IncumbentRevoked
from autotune.searching.run.search_run import Accuracy, SearchRun
from autotune.searching.run.time_budget import trial_seconds
from autotune.study.facts import VALIDATION, Revocation
from autotune.study.finished import FinishedTrial, alone, best_feasible
from autotune.values.outcome import Failure, Lost, describe

_FAILED = 1.0
# Share of the search after which every incumbent is validated. It is likely to become the result,
# which needs validation anyway; if it fails, half of the trials are left to find another.
_LATE = 1 / 2
# Training takes a fortieth of the time budget; a seed that takes more is mostly evaluation, or
# that of a script whose loss falls late.
_DEAR = 1 / 30
_FAR = 2


def validates_late(search: SearchRun) -> bool:
    """Return whether trials may be told first and revoked afterwards.

    Only autotune's own sampler takes revocations into account. Optuna's see what a trial was told,
    and nothing later.
    """
    return search.context.options.sampling.sampler == AUTO


def seeds_are_dear(search: SearchRun) -> bool:
    """Return whether an accuracy seed takes so much of the time that only incumbents get one.

    A trial is then told without a seed, and is probed after it was the incumbent for long enough.
    """
    budget = search.context.time_budget_seconds
    seconds = search.study.notes.seed_seconds
    if budget is None or seconds is None or not validates_late(search):
        return False
    return seconds > _DEAR * budget


def validate_incumbent(
    search: SearchRun, accuracy: Accuracy, trial: FinishedTrial
) -> Iterator[IncumbentRevoked]:
    """Validate the incumbent after `trial`, on as many seeds as its time as incumbent pays for.

    An incumbent that is not accurate enough is revoked, with all trials of equivalent training.
    The next best trial is then validated in the same way.
    """
    if not validates_late(search):
        return
    others = (one for one in search.study.finished() if one.number != trial.number)
    led_by = best_feasible(others)
    if led_by is not None:
        accuracy.seed_budget.follow(_training_equivalent(accuracy, led_by), trial_seconds(trial))
    with search.adding_seconds(VALIDATION):
        while (best := best_feasible(search.study.finished())) is not None:
            found = _validated(search, accuracy, best)
            if isinstance(found, Lost) or _holds(found):
                return
            yield _revoked(search, best, found)


def prove_candidate(search: SearchRun, accuracy: Accuracy) -> Iterator[IncumbentRevoked]:
    """Decide on the accuracy of the candidate for which the time left is set aside.

    One that fails here is revoked and leaves its time to the next candidate or to further trials.
    """
    prober = accuracy.prober
    if not validates_late(search):
        return
    with search.adding_seconds(VALIDATION):
        while (best := search.time_budget.candidate) is not None:
            known = prober.known_seeds(best.config)
            look = next((look for look in (len(SEEDS), INCUMBENT_SEEDS) if look > known), 0)
            if prober.is_validated(best.config) or not look:
                return
            found = prober.proof(best.config, look)
            if isinstance(found, Lost):
                return
            if not isinstance(found, AccuracyVerdict) or (
                found.is_final and found.decision != "accept"
            ):
                yield _revoked(search, best, found)


def _validated(
    search: SearchRun, accuracy: Accuracy, best: FinishedTrial
) -> AccuracyVerdict | Failure:
    """Return the verdict on a trial's accuracy after as many seeds as are paid for."""
    prober = accuracy.prober
    if _waits(search, accuracy, best):
        return AccuracyVerdict("undecided", 0.0, (), "")
    found = prober.verdict(best.config, most_seeds=1)
    while isinstance(found, AccuracyVerdict) and found.decision == "undecided":
        seeds = len(found.qualities)
        # A loss on one or two seeds may be chance, unless it is far off.
        in_doubt = found.margin > 0 and seeds < len(SEEDS)
        if in_doubt and seeds_are_dear(search) and _is_far_off(accuracy, found):
            break
        is_enough = found.is_final or seeds >= INCUMBENT_SEEDS
        if is_enough or not (in_doubt or _pays(search, accuracy, best, seeds)):
            break
        found = prober.verdict(best.config, seeds + 1)
    return found


def _is_far_off(accuracy: Accuracy, found: AccuracyVerdict) -> bool:
    """Return whether the mean loss exceeds twice the tolerance."""
    rule = accuracy.rule
    return fmean(rule.losses(found.qualities)) > _FAR * rule.tolerance


def _waits(search: SearchRun, accuracy: Accuracy, best: FinishedTrial) -> bool:
    """Return whether the first seed of the best trial is expensive and not yet paid for."""
    prober = accuracy.prober
    if prober.known_seeds(best.config) or prober.spares_seeds(best.config):
        return False
    if not seeds_are_dear(search):
        return False
    return not _pays(search, accuracy, best, seeds=0)


def _pays(search: SearchRun, accuracy: Accuracy, best: FinishedTrial, seeds: int) -> bool:
    """Return whether one more seed is paid for, with the baseline's seeds that it needs."""
    if search.time_budget.share_spent() >= _LATE and (seeds == 0 or not seeds_are_dear(search)):
        return True
    known = accuracy.prober.known_seeds(search.context.baseline)
    missing = max(0, seeds + 1 - known)
    price = _seconds_of_a_seed(search, accuracy) * (1 + missing)
    return accuracy.seed_budget.pays(_training_equivalent(accuracy, best), price)


def _seconds_of_a_seed(search: SearchRun, accuracy: Accuracy) -> float:
    """Return the seconds of a seed as the study noted them, else an estimate."""
    rate = search.baseline.details.samples_per_second
    assert rate, "the baseline was timed"
    estimate = accuracy.prober.samples / rate + search.context.start_seconds
    known = search.study.notes.seed_seconds
    return float(estimate if known is None else known)


def _holds(found: AccuracyVerdict | Failure) -> bool:
    return isinstance(found, AccuracyVerdict) and found.margin <= 0


def _revoked(
    search: SearchRun, trial: FinishedTrial, found: AccuracyVerdict | Failure
) -> IncumbentRevoked:
    """Revoke a trial, and if seeds show it, all trials of equivalent training.

    A numerics check or a failure concerns this trial alone.
    """
    if isinstance(found, AccuracyVerdict):
        why = Revocation(found.margin, found.reason, in_doubt=found.decision != "reject")
    else:
        why = Revocation(_FAILED, f"accuracy probe: {describe(found)}")
    by_seeds = isinstance(found, AccuracyVerdict) and found.qualities
    of_all = trial.details.training if by_seeds else None
    search.study.revoke(of_all or alone(trial.number), why)
    best = best_feasible(search.study.finished()) or search.baseline
    return IncumbentRevoked(trial, why.reason, best, search.baseline)


def _training_equivalent(accuracy: Accuracy, trial: FinishedTrial) -> str:
    return accuracy.prober.training_equivalent(trial.config).quality_key()
