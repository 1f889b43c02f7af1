"""The user's own settings: measured first, reference of every claim, and the gate of the search."""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path
from statistics import fmean, median

from autotune.best import UNCHANGED
from autotune.constraints import AccuracyRule, judge
from autotune.errors import AutotuneError, WorkloadError
from autotune.job import Measure
from autotune.measurement import Measurement
from autotune.outcome import (
    Lost,
    Measured,
    OutOfMemory,
    TimedOut,
    TrialOutcome,
    as_failure,
    describe,
)
from autotune.text import readable
from autotune.tuning.events import StepStarted
from autotune.tuning.forecast import PLAN, RUNS, before_runs
from autotune.tuning.judging.accuracy import AccuracyProber, no_reference, probe_samples
from autotune.tuning.judging.script_accuracy import ScriptProber
from autotune.tuning.judging.seeds import SEEDS
from autotune.tuning.reserve import RUN_SECONDS
from autotune.tuning.session import Session, details_of, process_seconds
from autotune.tuning.storing.finished import TRAINED_AS
from autotune.tuning.storing.own_runs import Runs, note_runs, noted_runs
from autotune.tuning.storing.study import FinishedTrial


def measure_baseline(session: Session) -> Generator[StepStarted, None, Runs | str]:
    """The user's settings in several fresh processes, or why they are no feasible reference.

    Raises:
        WorkloadError: they do not run at all, which is for the user to mend.
    """
    known = noted_runs(session.study)
    if known is not None:
        return known
    runs: list[Measurement] = []
    seconds: list[float] = []
    for number in range(RUNS):
        yield StepStarted(f"process {number + 1} of {RUNS}", before_runs(session, seconds))
        folder = session.folder("0000", str(number))
        job = session.scene.job(Measure(PLAN), session.scene.baseline)
        start = time.monotonic()
        outcome = session.runner.run(job, folder)
        seconds.append(time.monotonic() - start)
        if isinstance(outcome, OutOfMemory | TimedOut):
            return describe(outcome)
        if isinstance(outcome, Lost):
            raise AutotuneError(f"the baseline was lost: {outcome.detail}. Try the same again.")
        if not isinstance(outcome, Measured):
            raise WorkloadError(_own_settings_fail(session, outcome, folder))
        runs.append(session.comparable(outcome.measurement))
    session.study.note(RUN_SECONDS, round(median(seconds), 3))
    note_runs(session.study, tuple(runs))
    return tuple(runs)


def baseline_prober(session: Session, runs: Runs) -> AccuracyProber:
    """The prober for this study, with as many samples a probe as it had from the beginning."""
    script = session.scene.options.script
    if script is not None and script.metric is None:
        return ScriptProber(session.scene, session.runner, session.study, samples=0)
    samples = session.scene.options.accuracy_samples or session.study.noted("probe_samples")
    if samples is None:
        speed = median(run.samples_per_second for run in runs)
        samples = probe_samples(session.scene, speed)
        session.study.note("probe_samples", samples)
    kind = AccuracyProber if script is None else ScriptProber
    return kind(session.scene, session.runner, session.study, samples)


def first_rule(prober: AccuracyProber) -> AccuracyRule | str:
    """What the baseline reaches, or why it is no feasible reference.

    One seed is enough until something speaks against another configuration, or a floor against
    this one.

    Raises:
        WorkloadError: its probe fails for another reason than memory or time.
    """
    rule = prober.rule(1 if prober.scene.options.min_accuracy is None else len(SEEDS))
    return rule if isinstance(rule, AccuracyRule) else no_reference(rule)


def tell_baseline(session: Session, runs: Runs, rule: AccuracyRule) -> FinishedTrial:
    """Make the baseline the study's first trial, with its median run to stand for it."""
    if session.study.finished():
        return session.baseline
    run = sorted(runs, key=lambda run: run.samples_per_second)[len(runs) // 2]
    scene = session.scene
    margin = rule.margin(rule.baseline)
    verdict = judge(Measured(run), scene.objective, scene.memory_limit_bytes, margin)
    details = details_of(Measured(run), sum(map(process_seconds, runs)))
    details[TRAINED_AS] = scene.baseline.quality_key()
    if rule.metric != UNCHANGED:
        details["quality"] = readable(fmean(rule.baseline))
    return session.study.add(scene.baseline, verdict, details)


def _own_settings_fail(session: Session, outcome: TrialOutcome, folder: Path) -> str:
    return (
        f"{session.scene.options.model_path} fails with your own settings: "
        f"{describe(as_failure(outcome))}\n"
        "Nothing can be compared with settings that fail: mend the file, or change BASELINE.\n"
        f"Whole log: {folder / 'stderr.log'}"
    )
