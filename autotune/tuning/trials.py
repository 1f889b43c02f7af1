"""The study loop: ask for a configuration, measure it, judge it, tell."""

from __future__ import annotations

import time
import zlib
from collections.abc import Generator, Iterator
from dataclasses import replace
from statistics import fmean

from autotune.best import UNCHANGED
from autotune.config import TrainingConfig
from autotune.constraints import Verdict, judge
from autotune.job import Measure
from autotune.outcome import Failure, Lost, Measured, TrialOutcome
from autotune.text import readable
from autotune.tuning.breaker import Breaker
from autotune.tuning.drift import drift_now
from autotune.tuning.events import LeadLost, LeftOut, TrialEnded, TrialStarted
from autotune.tuning.expense import expense
from autotune.tuning.foresight import foresee
from autotune.tuning.judging.accuracy import AccuracyVerdict
from autotune.tuning.judging.seeds import MOST_SEEDS, SEEDS
from autotune.tuning.proving import prove_lead, proves_late
from autotune.tuning.session import Accuracy, Session, details_of
from autotune.tuning.storing.finished import TRAINED_AS
from autotune.tuning.storing.storage import check_still_there
from autotune.tuning.storing.study import INTERRUPTED, FinishedTrial, best_feasible
from autotune.tuning.trial_plan import deadline, to_beat, trial_plan

# Samplers do not store their random state; the same seed would repeat a study's first proposals.
_SEED_STRIDE = 1_000_003
POLL_SECONDS = 0.5
"""Between two looks at what others do, where there is nothing else to do."""

Told = TrialStarted | TrialEnded | LeadLost | LeftOut
"""What is said while trials run."""


def run_trials(session: Session, accuracy: Accuracy) -> Iterator[Told]:
    """Trials until the budget is spent or the space exhausted.

    Raises:
        TooManyLostError: trial after trial was lost to faults of the infrastructure, or failed.
        KeyboardInterrupt: a person asked to stop; no trial is left running.
    """
    prepare(session, accuracy)
    yield from work(session, accuracy, Breaker(session.scene.options.max_failures))


def prepare(session: Session, accuracy: Accuracy) -> None:
    """Choose who proposes; once for all that propose in this process."""
    options, study = session.scene.options, session.study
    seed = options.seed + _SEED_STRIDE * len(study.finished()) + zlib.crc32(session.worker.encode())
    study.use_sampler(options.sampler, seed, expense(session, accuracy))
    study.news()  # of earlier runs


def work(session: Session, accuracy: Accuracy, breaker: Breaker) -> Iterator[Told]:
    """Trials one after the other, beside others who do the same and share the breaker."""
    study = session.study
    if session.worker or len(study.finished()) > 1:
        drift_now(session, resumed=True)
    while True:
        session.stop.check()
        claimed = _claim(session)
        trial = None
        if claimed is not None:
            trial = yield from _run_trial(session, accuracy, *claimed)
        for told in study.news():
            yield session.trial_ended(told)
        if isinstance(trial, FinishedTrial):
            yield from prove_lead(session, accuracy, trial)
        for mode in breaker.leave_out(study.broken_modes()):
            yield LeftOut(f"compile_mode={mode}, which failed again and again and never ran")
        if isinstance(trial, FinishedTrial):
            breaker.finished(trial)
        elif trial is not None:
            breaker.lost(trial)
        elif _nothing_comes(session):
            return
        else:
            time.sleep(POLL_SECONDS)


def _claim(session: Session) -> tuple[int, TrainingConfig] | None:
    """A trial of one's own: what was found elsewhere first, as far as this space has it."""
    scene = session.scene
    if session.end_reason() is not None:
        return None
    return session.study.claim(scene.trials, map(scene.space.within, scene.options.warm_start))


def _nothing_comes(session: Session) -> bool:
    """Whether no trial is left, not even one that another's death would leave."""
    others = session.study.others_run()
    return session.study.is_closed or (not others and session.end_reason() is not None)


def _run_trial(
    session: Session, accuracy: Accuracy, number: int, config: TrainingConfig
) -> Generator[TrialStarted, None, FinishedTrial | str]:
    """Measure one configuration and tell the study; a text says how it was lost instead."""
    try:
        yield TrialStarted(number, config)
        start = time.monotonic()
        with session.stop.trial():
            outcome = foresee(session, config) or _measure(session, config, number)
            if isinstance(outcome, Lost):
                session.study.lose(number, outcome.detail)
                return outcome.detail
            verdict, quality = _judge(session, accuracy, config, outcome)
    except BaseException:
        session.study.lose(number, INTERRUPTED)
        raise
    details = {
        **details_of(outcome, time.monotonic() - start),
        "quality": quality,
        TRAINED_AS: accuracy.prober.trained_as(config).quality_key(),
    }
    trial = session.study.tell(number, verdict, details)
    check_still_there(session.scene.options.storage)
    return trial


def _measure(session: Session, config: TrainingConfig, number: int) -> TrialOutcome:
    """Time a configuration in a process of its own, beside how fast the machine is now."""
    speed = drift_now(session)
    job = session.scene.job(
        Measure(trial_plan(session, to_beat(session, speed))), config, deadline(session, config)
    )
    outcome = session.runner.run(job, session.folder(f"{number:04d}"))
    if not isinstance(outcome, Measured):
        return outcome
    return Measured(session.comparable(outcome.measurement, speed))


def _judge(
    session: Session, accuracy: Accuracy, config: TrainingConfig, outcome: TrialOutcome
) -> tuple[Verdict, float | None]:
    """The verdict, and the quality where the configuration was fast enough to be probed."""
    objective, limit = session.scene.objective, session.scene.memory_limit_bytes
    verdict = judge(outcome, objective, limit)
    if not (verdict.feasible and isinstance(outcome, Measured) and _could_win(session, outcome)):
        return verdict, None
    proves_now = _leads(session, verdict) and not proves_late(session)
    found = _accuracy_of(accuracy, config, MOST_SEEDS if proves_now else 1)
    if not isinstance(found, AccuracyVerdict):
        failed = judge(found, objective, limit)
        return Verdict(verdict.value, failed.margins, f"accuracy probe: {failed.reason}"), None
    judged = judge(outcome, objective, limit, found.margin)
    if found.margin > 0:
        judged = replace(judged, reason=found.reason)
    measured = found.qualities and accuracy.rule.metric != UNCHANGED
    return judged, readable(fmean(found.qualities)) if measured else None


def _accuracy_of(
    accuracy: Accuracy, config: TrainingConfig, most_seeds: int
) -> AccuracyVerdict | Failure:
    """The gate and one seed, which refuse what is far off; more for what is near."""
    prober = accuracy.prober
    found = prober.verdict(config, most_seeds=1)
    if not isinstance(found, AccuracyVerdict) or found.decision != "undecided":
        return found
    seeds = max(most_seeds, len(SEEDS) if found.margin > 0 else 1)
    return prober.verdict(config, seeds)


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
