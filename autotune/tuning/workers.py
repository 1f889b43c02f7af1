"""More devices and hosts work on a study that a search leads: they run trials and nothing else.

The search measures the baseline and notes what trials are judged by; a worker reads that, and
checks that it has the same model and the same kind of machine. Optuna's storage is all that they
share.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import RDBStorage

from autotune.config import TrainingConfig
from autotune.constraints import Tolerance
from autotune.errors import StudyMismatchError, UsageError
from autotune.outcome import Inspected
from autotune.space import SearchSpace
from autotune.trial_folder import make_private
from autotune.tuning.baseline import baseline_prober
from autotune.tuning.diagnosis import noted_diagnosis
from autotune.tuning.events import Event, PhaseStarted, Planned, TrialsEnded, Warned
from autotune.tuning.running.devices import Device
from autotune.tuning.running.neighbours import neighbours, shared_line
from autotune.tuning.running.runner import Runner
from autotune.tuning.running.stop import Stop, StoppableRunner
from autotune.tuning.sampling.samplers import AUTO
from autotune.tuning.scene import Scene, SearchOptions, inspect, inspection, sha256_of
from autotune.tuning.session import Accuracy, Session
from autotune.tuning.storing.identity import differences
from autotune.tuning.storing.journal import Journal
from autotune.tuning.storing.mutex import mutex_for
from autotune.tuning.storing.opening import open_study
from autotune.tuning.storing.own_runs import noted_runs
from autotune.tuning.storing.storage import (
    check_storage,
    connected,
    is_server,
    masked,
    storage_errors,
)
from autotune.tuning.trials import run_trials

_NOTE = "workers"
_LOOK_SECONDS = 1.0
# Of a search's options, what its trials depend on besides the study's identity.
_TOLERANCE = "accuracy_tolerance"
_TOLD = (
    "space",
    "objective",
    "run_samples",
    "run_epochs",
    "min_accuracy",
    "accuracy_samples",
    "lr_scaling",
    "sampler",
    "seed",
    "trial_timeout_seconds",
    "max_failures",
)


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What a person asked for."""

    study: str
    storage: str
    model_path: Path
    folder: Path
    """Of the study on this host."""
    device: Device
    allow_mixed: bool = False
    """Whether a study of the same name may be joined that is of machines like this one."""


def admit(session: Session) -> None:
    """Note what workers need, where there may be any: from now on they run trials."""
    if not session.study.is_shared:
        return
    scene = session.scene
    told: dict[str, Any] = {name: getattr(scene.options, name) for name in _TOLD}
    told[_TOLERANCE] = asdict(scene.options.accuracy_tolerance)
    if not isinstance(told["sampler"], str):
        told["sampler"] = AUTO  # an object of the search's own process
    session.study.note(_NOTE, {"options": told, "trials": scene.trials})


def join(options: WorkerOptions, runner: Runner, stop: Stop) -> Iterator[Event]:
    """Run trials of the study until none is left.

    Raises:
        UsageError: the storage does not take several writers.
        StudyMismatchError: this machine or model is another than the study's.
        StorageError: the storage cannot be used.
    """
    check_storage(options.storage)
    if not is_server(options.storage):
        raise UsageError(
            f"--storage {masked(options.storage)} takes one writing process. Workers need a "
            "PostgreSQL server; on one host, `autotune search --devices` needs none."
        )
    runner = StoppableRunner(runner, stop)
    with storage_errors(options.storage):
        make_private(options.folder)
        started = time.monotonic()
        job = inspection(options.device.torch_name, options.model_path)
        found = inspect(runner, job, options.folder / "inspect")
        seconds = time.monotonic() - started
        if others := neighbours(found.device_uuid):
            yield Warned(shared_line(found.machine.device, others))
        yield from (waiting := _Waiting(options, found)).until_ready(stop)
        session = _session(options, waiting, found, runner)
        session = replace(session, stop=stop, scene=replace(session.scene, start_seconds=seconds))
        try:
            yield from _work(session)
        finally:
            session.study.disconnect()


class _Waiting:
    """Until a search says what its trials are judged by."""

    def __init__(self, options: WorkerOptions, found: Inspected) -> None:
        self._options = options
        self._own = own_identity(options, found)
        self.name = options.study
        self.noted: dict[str, Any] = {}

    def until_ready(self, stop: Stop) -> Iterator[Event]:
        """Look again and again.

        Raises:
            StudyMismatchError: there is one, and it is of something else.
        """
        mutex = mutex_for(self._options.storage)
        with mutex.turn():
            storage = connected(self._options.storage)
        mutex.close()
        assert storage is not None
        said = False
        try:
            while not self._is_ready(storage):
                if not said:
                    yield Warned(f"no search of {self.name!r} has measured its baseline; waiting")
                    said = True
                stop.check()
                time.sleep(_LOOK_SECONDS)
        finally:
            storage.engine.dispose()

    def _is_ready(self, storage: RDBStorage) -> bool:
        changed: list[str] = []
        for name in self._names(storage):
            try:
                noted = optuna.load_study(study_name=name, storage=storage).user_attrs
            except KeyError:
                continue
            if _NOTE not in noted:
                continue
            if "script" in noted["identity"]:
                raise UsageError(f"study {name!r} is of a script, which workers cannot run yet.")
            known = noted["identity"]  # of more than a worker finds itself
            shared = {name: known.get(name) for name in (*self._own, "modules")}
            changed = differences(shared, self._own)
            if not changed:
                self.name, self.noted = name, noted
                return True
        if changed:
            raise StudyMismatchError(
                f"study {self._options.study!r} was made for something else:\n"
                + "\n".join(changed)
                + "\nWorkers need the same model and the same kind of machine. Where machines "
                "differ, one of each kind leads with `autotune search --force`, and the others "
                "of its kind join with --allow-mixed."
            )
        return False

    def _names(self, storage: RDBStorage) -> list[str]:
        """Of this name; with --allow-mixed also those that `search --force` began beside it."""
        if not self._options.allow_mixed:
            return [self._options.study]
        everything = optuna.get_all_study_names(storage)
        beside = [name for name in everything if name.startswith(f"{self._options.study}@")]
        return [self._options.study, *beside]


def own_identity(options: WorkerOptions, found: Inspected) -> Mapping[str, Any]:
    """What has to be the study's own: the model and the kind of machine."""
    modules = found.workload.local_modules if found.workload else {}
    return {
        "model_sha256": sha256_of(options.model_path),
        **({"modules": modules} if modules else {}),
        "machine": found.machine.fingerprint,
    }


def _session(
    options: WorkerOptions, waiting: _Waiting, found: Inspected, runner: Runner
) -> Session:
    """The search's own scene on this device; nothing of it is asked for again."""
    ready, identity = waiting.noted[_NOTE], waiting.noted["identity"]
    worker = f"{socket.gethostname()}-{os.getpid()}"
    folder = options.folder / "workers" / worker
    told = ready["options"] | {_TOLERANCE: Tolerance(**ready["options"][_TOLERANCE])}
    search = SearchOptions(
        model_path=options.model_path,
        study=waiting.name,
        storage=options.storage,
        folder=folder,
        out=folder / "best.yaml",
        trials=ready["trials"],
        **told,
    )
    assert found.workload is not None
    scene = Scene(
        options=search,
        machine=found.machine,
        facts=found.workload,
        baseline=TrainingConfig.of(identity["baseline"]),
        space=SearchSpace({name: tuple(values) for name, values in identity["space"].items()}),
        trials=ready["trials"],
        memory_limit_bytes=identity["memory_limit_bytes"],
    )
    journal = Journal(options.folder)
    study = open_study(waiting.name, options.storage, scene.space, scene.objective, journal)
    study.check_identity(identity)
    return Session(scene, runner, study, worker=f"@{worker}")


def _work(session: Session) -> Iterator[Event]:
    noted = noted_diagnosis(session.scene, session.study)
    if noted is not None:
        session = session.narrowed_by(noted)
    runs = noted_runs(session.study)
    assert runs is not None, "a search admits workers after its baseline"
    yield Planned(session.scene, len(session.study.finished()))
    yield PhaseStarted("search", f"trials of {session.study.name} run here, too")
    yield from run_trials(session, Accuracy(baseline_prober(session, runs)))
    yield TrialsEnded(session.end_reason() or "the search takes no more")
