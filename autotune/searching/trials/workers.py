"""Workers: processes on further devices or hosts that run trials of a search's study.

The search measures the baseline and notes the options by which trials are judged. A worker reads
them, and checks that it has the same model and the same kind of machine. They share nothing but
Optuna's storage.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage
from pydantic import TypeAdapter

from autotune.configuration.accuracy_rule import Tolerance
from autotune.configuration.mismatch import sha256_of
from autotune.configuration.script import ScriptOptions
from autotune.context.inspection import inspect, inspection, inspection_of_device
from autotune.context.options import SearchOptions
from autotune.context.script_facts import check_device, observation, observe
from autotune.context.search_context import SearchContext
from autotune.processes.devices import Device
from autotune.processes.neighbours import neighbours, shared_line
from autotune.processes.runner import Runner
from autotune.processes.stop import Stop, StoppableRunner
from autotune.searching.run.diagnosis import noted_diagnosis
from autotune.searching.run.events import Event, PhaseStarted, Planned, TrialsEnded, Warned
from autotune.searching.run.search_run import Accuracy, SearchRun
from autotune.searching.run.stopping import end_reason
from autotune.searching.trials.baseline import baseline_prober
from autotune.searching.trials.trials import run_trials
from autotune.storage.database import (
    check_storage,
    connected,
    disconnect,
    is_shared,
    masked,
    storage_errors,
)
from autotune.storage.identity import differences
from autotune.storage.journal import Journal
from autotune.storage.mutex import mutex_for
from autotune.storage.note_types import Workers
from autotune.storage.notes import StudyNotes
from autotune.study.opening import open_study
from autotune.study.samplers import AUTO
from autotune.system.interpreter import Interpreter, own_interpreter
from autotune.system.trial_folder import make_private
from autotune.values.errors import StudyMismatchError, UsageError
from autotune.values.outcome import Inspected, Observed

_LOOK_SECONDS = 1.0
_DEADLINE_SECONDS = 600.0
# Facts that are absent where there is no such file.
_LOCAL = ("modules", "argument_files_sha256")
# Options of the search on which trials depend, besides the study's identity.
_TOLERANCE = "accuracy_tolerance"
_TOLD = (
    "space",
    "objective",
    "run_samples",
    "run_epochs",
    "min_accuracy",
    "accuracy_samples",
    "unit",
    "lr_scaling",
    "sampler",
    "seed",
    "trial_timeout_seconds",
    "max_failures",
    "fresh_data",
)


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Options of a worker, as the user gave them."""

    study: str
    storage: str
    model_path: Path
    folder: Path
    """Folder of the study on this host."""
    device: Device
    allow_mixed: bool = False
    """True to join also a study that `search --force` began under the same name."""
    script: ScriptOptions | None = None
    """The script's arguments; None for a model.py. Its other options are the search's."""
    python: Interpreter = field(default_factory=own_interpreter)
    """Python that trains."""

    @property
    def worker(self) -> str:
        """Name of this process among the workers of all hosts."""
        return f"{socket.gethostname()}-{os.getpid()}"

    @property
    def own_folder(self) -> Path:
        """Folder of this process alone; others may have the same `folder`."""
        return self.folder / "workers" / self.worker


def admit(search: SearchRun) -> None:
    """Note what workers need, if the study is shared; from now on they run trials."""
    if not search.study.is_shared:
        return
    context = search.context
    options = context.options.flat()
    told: dict[str, Any] = {name: options[name] for name in _TOLD}
    if (script := context.options.workload.script) is not None:
        told["script"] = replace(script, arguments=())  # which may hold secrets
    told[_TOLERANCE] = context.options.accuracy.tolerance.as_json
    if not isinstance(told["sampler"], str):
        told["sampler"] = AUTO  # a sampler object cannot leave its process
    search.study.notes.workers = Workers(told, context.trials)


def join(options: WorkerOptions, runner: Runner, stop: Stop) -> Iterator[Event]:
    """Run trials of the study until none is left.

    Raises:
        UsageError: the storage does not take several writers, or the study is of the other kind of
            workload.
        WorkloadError: the script cannot be observed.
        StudyMismatchError: this machine or model differs from the study's.
        StorageError: the storage cannot be used.
    """
    check_storage(options.storage)
    if not is_shared(options.storage):
        raise UsageError(
            f"--storage {masked(options.storage)} takes one writing process. Workers need a file "
            "that they share, journal:///study.log, or a PostgreSQL server; on one host, "
            "`autotune search --devices` needs none."
        )
    runner = StoppableRunner(runner, stop)
    with storage_errors(options.storage):
        make_private(options.folder)
        started = time.monotonic()
        found, observed = _inspected(options, runner)
        seconds = max(0.0, time.monotonic() - started - found.dataset_seconds)
        if others := neighbours(found.device_uuid):
            yield Warned(shared_line(found.machine.device, others))
        yield from (waiting := _Waiting(options, found)).until_ready(stop)
        search = _search(options, waiting, found, runner)
        context = replace(
            search.context,
            observed=observed,
            start_seconds=seconds,
            dataset_seconds=found.dataset_seconds,
            is_dataset_shared=found.is_shared,
        )
        search = replace(search, stop=stop, context=context)
        try:
            yield from _work(search)
        finally:
            search.study.disconnect()


def _inspected(options: WorkerOptions, runner: Runner) -> tuple[Inspected, Observed | None]:
    """Inspect machine and workload; a script is observed for that, on the device that it takes."""
    job = inspection(options.device.torch_name, options.model_path)
    if options.script is None:
        return inspect(runner, job, options.own_folder / "inspect"), None
    folder = options.own_folder / "inspect" / "script"
    job = observation(options.model_path, options.script, _DEADLINE_SECONDS)
    observed = observe(runner, job, folder)
    check_device(observed, options.device.torch_name)
    found = inspect(runner, inspection_of_device(observed), options.own_folder / "inspect")
    return replace(found, workload=observed.workload), observed


class _Waiting:
    """Waits for a study with a measured baseline; `name` and `notes` are then that study's."""

    def __init__(self, options: WorkerOptions, found: Inspected) -> None:
        self._options = options
        self._own = own_identity(options, found)
        self.name = options.study
        self.notes = StudyNotes()

    def until_ready(self, stop: Stop) -> Iterator[Event]:
        """Poll the storage until a suitable study is ready.

        Raises:
            StudyMismatchError: the study was made for something else.
            UsageError: the study is of the other kind of workload.
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
            disconnect(storage)

    def _is_ready(self, storage: BaseStorage) -> bool:
        changed: list[str] = []
        for name in self._names(storage):
            try:
                study = optuna.load_study(study_name=name, storage=storage)
                notes = StudyNotes(study.user_attrs)
            except KeyError:
                continue
            if notes.workers is None or notes.identity is None:
                continue
            self._check_kind(name, notes.identity.is_of_script)
            own = {**self._own, **_script_identity(self._options, notes.workers)}
            known = notes.identity.facts  # holds more facts than a worker can find
            shared = {name: known.get(name) for name in (*own, *_LOCAL)}
            changed = differences(shared, own)
            if not changed:
                self.name, self.notes = name, notes
                return True
        if changed:
            raise StudyMismatchError(
                f"study {self._options.study!r} was made for something else:\n"
                + "\n".join(changed)
                + "\nWorkers need the same model and the same kind of machine. Where machines "
                "differ, start one `autotune search --force` on each kind; workers join the one of "
                "their kind with --allow-mixed."
            )
        return False

    def _check_kind(self, name: str, is_of_script: bool) -> None:
        path, is_script = self._options.model_path, self._options.script is not None
        if is_of_script and not is_script:
            raise UsageError(f"study {name!r} is of a script; to have {path} run as one, add --")
        if is_script and not is_of_script:
            raise UsageError(f"study {name!r} is of a model.py, and {path} is run as a script.")

    def _names(self, storage: BaseStorage) -> list[str]:
        """Return the study's name, and with --allow-mixed those that `search --force` began."""
        if not self._options.allow_mixed:
            return [self._options.study]
        everything = optuna.get_all_study_names(storage)
        beside = [name for name in everything if name.startswith(f"{self._options.study}@")]
        return [self._options.study, *beside]


def own_identity(options: WorkerOptions, found: Inspected) -> Mapping[str, Any]:
    """Return the facts that a worker must share with the study: model and kind of machine."""
    modules = found.workload.local_modules if found.workload else {}
    return {
        "model_sha256": sha256_of(options.model_path),
        **({"modules": modules} if modules else {}),
        "machine": found.machine.fingerprint,
    }


def _script_of(options: WorkerOptions, told: Mapping[str, Any]) -> ScriptOptions | None:
    """Return the call of the script: the worker's own arguments, and the search's options."""
    if options.script is None:
        return None
    known = TypeAdapter(ScriptOptions).validate_python(told.get("script", {"arguments": ()}))
    return replace(known, arguments=options.script.arguments)


def _script_identity(options: WorkerOptions, ready: Workers) -> dict[str, object]:
    script = _script_of(options, ready.options)
    return {} if script is None else script.facts


def _search(
    options: WorkerOptions, waiting: _Waiting, found: Inspected, runner: Runner
) -> SearchRun:
    """Return the search run for this device, with the options that the search noted."""
    ready, identity = waiting.notes.workers, waiting.notes.identity
    assert ready is not None, "it is ready"
    assert identity is not None, "it is ready"
    assert identity.space is not None, "a search notes its space"
    assert identity.memory_limit_bytes is not None, "a search notes its limit"
    assert found.workload is not None
    if (count := identity.facts.get("processes", 1)) > 1:
        raise UsageError(
            f"study {waiting.name!r} trains in {count} processes; workers run trials of one."
        )
    folder = options.own_folder
    script = _script_of(options, ready.options)
    tolerance = Tolerance.of_json(ready.options[_TOLERANCE])
    told = {**ready.options, _TOLERANCE: tolerance, "script": script}
    search = SearchOptions.of(
        model_path=options.model_path,
        study=waiting.name,
        storage=options.storage,
        folder=folder,
        out=folder / "best.yaml",
        trials=ready.trials,
        **told,
    )
    facts = found.workload
    if script is not None:
        facts = replace(facts, has_evaluate=search.workload.has_quality)
    context = SearchContext(
        options=search,
        machine=found.machine,
        facts=facts,
        baseline=identity.baseline,
        space=identity.space,
        trials=ready.trials,
        memory_limit_bytes=identity.memory_limit_bytes,
    )
    journal = Journal(options.folder)
    study = open_study(waiting.name, options.storage, context.space, context.objective, journal)
    study.check_identity(identity.facts)
    return SearchRun(context, runner, study, worker=f"@{options.worker}").with_noted_reference()


def _work(search: SearchRun) -> Iterator[Event]:
    noted = noted_diagnosis(search.context, search.study)
    if noted is not None:
        search = search.narrowed_by(noted)
    runs = search.study.notes.baseline_runs
    assert runs is not None, "a search admits workers after its baseline"
    yield Planned(search.context, len(search.study.finished()))
    yield PhaseStarted("search", f"trials of {search.study.name} run here, too")
    yield from run_trials(search, Accuracy(baseline_prober(search, runs)))
    yield TrialsEnded(end_reason(search) or "the search takes no further trials")
