"""The study loop: ask for a configuration, measure it, judge it, tell."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from dataclasses import replace
from statistics import fmean

from autotune.config import TrainingConfig
from autotune.constraints import Verdict, judge
from autotune.errors import TooManyLostError
from autotune.job import Measure, MeasurePlan
from autotune.outcome import Failure, Lost, Measured, TrialOutcome
from autotune.tuning.accuracy import MOST_SEEDS, SEEDS, AccuracyVerdict
from autotune.tuning.drift import drift_now
from autotune.tuning.events import TrialEnded, TrialStarted
from autotune.tuning.foresight import foresee
from autotune.tuning.session import Accuracy, Session, details_of
from autotune.tuning.study import FinishedTrial, best_feasible

_MOST_LOST_IN_A_ROW = 3
# A trial may take this many times the baseline's seconds, and this long more where it compiles.
_SLOWER_THAN_BASELINE = 6
_LEAST_DEADLINE_SECONDS = 60.0
_COMPILE_ALLOWANCE_SECONDS = 300.0
# Samplers do not store their random state; the same seed would repeat a study's first proposals.
_SEED_STRIDE = 1_000_003


def run_trials(session: Session, accuracy: Accuracy) -> Iterator[TrialStarted | TrialEnded]:
    """Trials until the budget is spent or the space exhausted.

    Raises:
        TooManyLostError: several children in a row were lost to faults of the infrastructure.
    """
    seed = session.scene.options.seed + _SEED_STRIDE * len(session.study.finished())
    session.study.use_sampler(session.scene.options.sampler, seed)
    if len(session.study.finished()) > 1:
        drift_now(session, resumed=True)
    lost: list[str] = []
    while session.end_reason() is None:
        trial = yield from _run_trial(session, accuracy)
        if isinstance(trial, FinishedTrial):
            lost.clear()
            yield session.trial_ended(trial)
            continue
        lost.append(trial)
        if len(lost) >= _MOST_LOST_IN_A_ROW:
            raise TooManyLostError(
                f"{len(lost)} trials in a row were lost. The last one: {trial}. "
                "Look at the logs of the last trials; the same command continues."
            )


def _run_trial(
    session: Session, accuracy: Accuracy
) -> Generator[TrialStarted, None, FinishedTrial | str]:
    """Measure one configuration and tell the study; a text says how it was lost instead."""
    number, config = session.study.ask(_found_elsewhere(session))
    try:
        yield TrialStarted(number, config)
        start = time.monotonic()
        outcome = foresee(session, config) or _measure(session, config, number)
        if isinstance(outcome, Lost):
            session.study.lose(number, outcome.detail)
            return outcome.detail
        verdict, quality = _judge(session, accuracy, config, outcome)
    except BaseException:
        session.study.lose(number, "interrupted")
        raise
    details = {**details_of(outcome, time.monotonic() - start), "quality": quality}
    return session.study.tell(number, verdict, details)


def _found_elsewhere(session: Session) -> TrainingConfig | None:
    """What an earlier search found, as far as this space has it; None where all of it is tried."""
    scene = session.scene
    seeds = map(scene.space.within, scene.options.warm_start)
    return next(filter(session.study.is_worth_a_try, seeds), None)


def _measure(session: Session, config: TrainingConfig, number: int) -> TrialOutcome:
    """Time a configuration in a process of its own, beside how fast the machine is now."""
    speed = drift_now(session)
    plan = MeasurePlan(incumbent_seconds_per_sample=_to_beat(session, speed))
    job = session.scene.job(Measure(plan), config, _deadline(session, config))
    outcome = session.runner.run(job, session.folder(f"{number:04d}"))
    if not isinstance(outcome, Measured):
        return outcome
    return Measured(session.comparable(outcome.measurement, speed))


def _to_beat(session: Session, machine_speed: float) -> float | None:
    """Seconds per sample that the best trial surely keeps to, as fast as the machine is now.

    None where there is no telling from them: who starts sooner may win a short run all the same.
    """
    best = best_feasible(session.study.finished())
    if best is None or session.scene.objective.run_samples is not None:
        return None
    low = best.details["samples_per_second_ci95"][0] / best.details.get("machine_speed", 1.0)
    return 1 / float(low * machine_speed)


def _judge(
    session: Session, accuracy: Accuracy, config: TrainingConfig, outcome: TrialOutcome
) -> tuple[Verdict, float | None]:
    """The verdict, and the quality where the configuration was fast enough to be probed."""
    objective, limit = session.scene.objective, session.scene.memory_limit_bytes
    verdict = judge(outcome, objective, limit)
    if not (verdict.feasible and isinstance(outcome, Measured) and _could_win(session, outcome)):
        return verdict, None
    found = _accuracy_of(accuracy, config, leads=_leads(session, verdict))
    if not isinstance(found, AccuracyVerdict):
        failed = judge(found, objective, limit)
        return Verdict(verdict.value, failed.margins, f"accuracy probe: {failed.reason}"), None
    judged = judge(outcome, objective, limit, found.margin)
    if found.margin > 0:
        judged = replace(judged, reason=found.reason)
    return judged, fmean(found.qualities) if found.qualities else None


def _accuracy_of(
    accuracy: Accuracy, config: TrainingConfig, leads: bool
) -> AccuracyVerdict | Failure:
    """The gate and one seed, which refuse what is far off; more for what is near, proof of a lead.

    Otherwise a search may follow what it cannot answer with in the end.
    """
    prober, rule = accuracy.prober, accuracy.rule
    found = prober.verdict(rule, config, most_seeds=1)
    if not isinstance(found, AccuracyVerdict):
        return found
    if found.decision == "undecided" and (leads or found.margin > 0):
        return prober.verdict(rule, config, MOST_SEEDS if leads else len(SEEDS))
    return found


def _leads(session: Session, verdict: Verdict) -> bool:
    """Whether the trial would become the study's best."""
    best = best_feasible(session.study.finished())
    return best is None or (verdict.value or 0.0) > (best.verdict.value or 0.0)


def _could_win(session: Session, outcome: Measured) -> bool:
    """Whether the optimistic end of the interval reaches the best feasible value so far."""
    best = best_feasible(session.study.finished())
    if best is None or best.verdict.value is None:
        return True
    run = outcome.measurement
    return run.samples_per_second_interval[1] / run.machine_speed >= best.verdict.value


def _deadline(session: Session, config: TrainingConfig) -> float:
    baseline_seconds = session.baseline.details["process_seconds"]
    seconds = max(_LEAST_DEADLINE_SECONDS, _SLOWER_THAN_BASELINE * baseline_seconds)
    if config["compile_mode"] is not None:
        seconds += _COMPILE_ALLOWANCE_SECONDS
    return float(min(seconds, session.scene.options.trial_timeout_seconds))
