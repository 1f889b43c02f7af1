"""The search: baseline, trials, confirmation, answer. A generator that yields what happens.

It neither prints nor reads flags. Whoever drives it may stop at any event; what the study was told
by then is there the next time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autotune.tuning.baseline import RUNS, baseline_prober, measure_baseline, tell_baseline
from autotune.tuning.conclusion import conclude, emit, known_answer
from autotune.tuning.confirm import LOOKS
from autotune.tuning.diagnosis import diagnose, noted_diagnosis
from autotune.tuning.events import (
    Event,
    NothingFeasible,
    PhaseStarted,
    Planned,
    StagesTimed,
    StagesUnknown,
    TrialsEnded,
)
from autotune.tuning.runner import Runner
from autotune.tuning.scene import Scene, SearchOptions, survey
from autotune.tuning.session import Accuracy, Session
from autotune.tuning.storage import check_storage, storage_errors
from autotune.tuning.study import open_study
from autotune.tuning.trials import run_trials


def search(options: SearchOptions, runner: Runner) -> Iterator[Event]:
    """Find the settings under which the workload trains fastest, and write them to `options.out`.

    Raises:
        UsageError: the options do not fit the machine or the workload.
        WorkloadError: the workload fails with the user's own settings.
        StorageError: the study cannot be read or written.
        StudyMismatchError: a study of this name was made for something else.
    """
    check_storage(options.storage)
    with storage_errors(options.storage):
        yield from _search(survey(options, runner), runner)


def _search(scene: Scene, runner: Runner) -> Iterator[Event]:
    options = scene.options
    study = open_study(options.study, options.storage, scene.space, scene.objective)
    study.check_identity(scene.identity)
    study.reap()
    # What trials are charged for starting stays the same, however warm this machine's caches are.
    start_seconds = study.noted("start_seconds", scene.start_seconds)
    study.note("start_seconds", start_seconds)
    session = Session(replace(scene, start_seconds=start_seconds), runner, study)
    yield Planned(session.scene, len(study.finished()))
    noted = noted_diagnosis(session.scene, study)
    if noted is not None:
        session = session.narrowed_by(noted)
        yield StagesTimed(noted, session.scene.space)
    known = known_answer(session)
    if known is not None:
        yield emit(session, known)
        return
    yield PhaseStarted("baseline", f"your settings in {RUNS} processes, then their accuracy")
    runs = measure_baseline(session)
    if isinstance(runs, str):
        yield NothingFeasible({f"your settings: {runs}": 1})
        return
    prober = baseline_prober(session, runs)
    rule = prober.rule()
    if isinstance(rule, str):
        yield NothingFeasible({f"your settings: {rule}": 1})
        return
    accuracy = Accuracy(prober, rule)
    if noted is None and not study.finished():
        yield PhaseStarted("diagnosis", "each stage of training on its own")
        found = diagnose(session.scene, runner, study)
        if isinstance(found, str):
            yield StagesUnknown(found)
        else:
            session = session.narrowed_by(found)
            yield StagesTimed(found, session.scene.space)
    baseline = tell_baseline(session, runs, accuracy.rule)
    yield session.trial_ended(baseline)
    if not baseline.verdict.feasible:
        yield NothingFeasible({f"your settings: {baseline.verdict.reason}": 1})
        return
    yield PhaseStarted("search", f"{scene.trials} trials in total")
    yield from run_trials(session, accuracy)
    yield TrialsEnded(session.end_reason() or "")
    yield PhaseStarted("confirmation", f"fresh processes, {LOOKS[0]} rounds or more")
    yield from conclude(session, runs, accuracy)
