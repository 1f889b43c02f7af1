"""The search: baseline, trials, confirmation, answer. A generator that yields what happens.

It neither prints nor reads flags. Whoever drives it may stop at any event; what the study was told
by then is there the next time.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace

from autotune.constraints import AccuracyRule
from autotune.tuning.baseline import baseline_prober, first_rule, measure_baseline, tell_baseline
from autotune.tuning.confirming.conclusion import conclude, emit, known_answer
from autotune.tuning.confirming.confirm import LOOKS
from autotune.tuning.confirming.unconfirmed import write_so_far
from autotune.tuning.crew import Mates, check_alike, run_together
from autotune.tuning.diagnosis import diagnose, noted_diagnosis
from autotune.tuning.events import (
    Event,
    LeadLost,
    NothingFeasible,
    PhaseStarted,
    Planned,
    StagesTimed,
    StagesUnknown,
    StepStarted,
    TrialEnded,
    TrialsEnded,
    Warned,
)
from autotune.tuning.forecast import RUNS, before_diagnosis, before_probes
from autotune.tuning.reserve import RUN_SECONDS
from autotune.tuning.running.neighbours import neighbours, shared_line
from autotune.tuning.running.runner import Runner
from autotune.tuning.running.stop import Stop, StoppableRunner
from autotune.tuning.scene import Scene, SearchOptions, survey
from autotune.tuning.session import Accuracy, Session
from autotune.tuning.storing.identity import fingerprint_of
from autotune.tuning.storing.journal import Journal
from autotune.tuning.storing.opening import open_study
from autotune.tuning.storing.storage import (
    check_storage,
    database_of,
    network_file_system,
    storage_errors,
)
from autotune.tuning.storing.study import TuningStudy
from autotune.tuning.workers import admit


def search(
    options: SearchOptions, runner: Runner, stop: Stop | None = None, mates: Mates | None = None
) -> Iterator[Event]:
    """Find the settings under which the workload trains fastest, and write them to `options.out`.

    Trials run on the devices of `mates`, too, at the same time.

    Raises:
        UsageError: the options do not fit the machine or the workload, or the devices each other.
        WorkloadError: the workload fails with the user's own settings.
        StorageError: the study cannot be read or written.
        StudyMismatchError: a study of this name was made for something else.
        TooManyLostError: trial after trial failed or was lost.
        KeyboardInterrupt: a stop was asked for; the same search continues.
    """
    check_storage(options.storage)
    stop = stop or Stop()
    runner = StoppableRunner(runner, stop)
    with storage_errors(options.storage):
        session = _opened(survey(options, runner), runner, stop)
        try:
            for event in _search(session, mates or {}):
                if isinstance(event, LeadLost) or (
                    isinstance(event, TrialEnded) and event.best is event.trial
                ):
                    write_so_far(session.scene.options, event.best, event.baseline)
                yield event
        finally:
            session.study.disconnect()


def _opened(scene: Scene, runner: Runner, stop: Stop) -> Session:
    """The study, as far as an earlier run of the search brought it."""
    options = scene.options
    journal = None if options.storage is None else Journal(options.folder)

    def opened(name: str) -> TuningStudy:
        return open_study(name, options.storage, scene.space, scene.objective, journal)

    study = opened(options.study)
    if options.force and study.differences(scene.identity):
        mark = fingerprint_of(scene.identity)
        study.disconnect()
        name, folder = f"{options.study}@{mark}", options.folder / mark
        scene = replace(scene, options=replace(options, study=name, folder=folder))
        study = opened(name)
    try:
        study.check_identity(scene.identity)
        study.lead()
        study.reap()
        # What trials are charged for starting stays the same, however warm the caches are.
        start_seconds = study.noted("start_seconds", scene.start_seconds)
        study.note("start_seconds", start_seconds)
    except BaseException:
        study.disconnect()
        raise
    return Session(replace(scene, start_seconds=start_seconds), runner, study, stop=stop)


def _search(session: Session, mates: Mates) -> Iterator[Event]:
    study = session.study
    yield Planned(session.scene, len(study.finished()))
    yield from _warnings(session.scene)
    yield from check_alike(session, mates)
    noted = noted_diagnosis(session.scene, study)
    if noted is not None:
        session = session.narrowed_by(noted)
        yield StagesTimed(noted, session.scene.space)
    known = known_answer(session)
    if known is not None:
        yield emit(session, known)
        return
    yield PhaseStarted("baseline", f"your settings in {RUNS} processes, then their accuracy")
    runs = yield from measure_baseline(session)
    if isinstance(runs, str):
        yield NothingFeasible({f"your settings: {runs}": 1})
        return
    accuracy, taken = Accuracy(baseline_prober(session, runs)), [study.noted(RUN_SECONDS)]
    rule = yield from _told_first_rule(session, accuracy, taken)
    if isinstance(rule, str):
        yield NothingFeasible({f"your settings: {rule}": 1})
        return
    if noted is None and not study.finished():
        eta = before_diagnosis(session, taken)
        yield PhaseStarted("diagnosis", "each stage of training on its own", eta)
        with session.noting_seconds("diagnosis"):
            found = diagnose(session.scene, session.runner, study)
        if isinstance(found, str):
            yield StagesUnknown(found)
        else:
            session = session.narrowed_by(found)
            yield StagesTimed(found, session.scene.space)
    baseline = tell_baseline(session, runs, rule)
    yield session.trial_ended(baseline)
    if not baseline.verdict.feasible:
        yield NothingFeasible({f"your settings: {baseline.verdict.reason}": 1})
        return
    eta = session.eta_seconds()
    yield PhaseStarted("search", f"{session.scene.trials} trials in total", eta)
    admit(session)
    yield from run_together(session, accuracy, mates)
    yield TrialsEnded(session.end_reason() or "")
    eta = session.conclusion_seconds()
    yield PhaseStarted("confirmation", f"fresh processes, {LOOKS[0]} rounds or more", eta)
    yield from conclude(session, runs, accuracy)


def _told_first_rule(
    session: Session, accuracy: Accuracy, taken: Sequence[float]
) -> Generator[StepStarted, None, AccuracyRule | str]:
    if not session.study.finished():
        yield StepStarted("accuracy", before_probes(session, taken))
    with session.noting_seconds("accuracy"):
        return first_rule(accuracy.prober)


def _warnings(scene: Scene) -> Iterator[Warned]:
    """What may go wrong later, said at once."""
    database = database_of(scene.options.storage)
    kind = None if database is None else network_file_system(database)
    if kind:
        yield Warned(
            f"{database} lies on {kind}, where SQLite's locks may not hold. Choose a local folder "
            "or a PostgreSQL server with --storage."
        )
    if others := neighbours(scene.device_uuid):
        yield Warned(shared_line(scene.machine.device, others))
