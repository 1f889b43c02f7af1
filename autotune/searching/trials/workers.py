"""Workers: processes on further devices or hosts that run trials of a search's study.

The search measures the baseline and stores the options by which trials are judged. A worker waits
for them, and checks that it has the same model, arguments and kind of machine: what can be compared
before anything runs is compared first. They share nothing but Optuna's storage, on a server.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage
from pydantic import TypeAdapter

from autotune.configuration.constraints import THROUGHPUT, Tolerance
from autotune.configuration.mismatch import sha256_of
from autotune.configuration.script import ScriptOptions
from autotune.context.inspection import inspect, inspection, inspection_of_device
from autotune.context.options import SearchOptions
from autotune.context.script_facts import check_device, observation, observe
from autotune.context.search_context import SearchContext
from autotune.context.workload_files import UnchangedRunner, WorkloadFiles
from autotune.process.common.interpreter import Interpreter, own_interpreter
from autotune.process.common.trial_folder import make_private
from autotune.process.devices import Device, neighbours, shared_line
from autotune.process.runner import Runner
from autotune.process.stop import Stop, StoppableRunner
from autotune.sampling.samplers import AUTO
from autotune.searching.run.events import Event, PhaseStarted, Planned, TrialsEnded, Warned
from autotune.searching.run.search_run import Accuracy, SearchRun
from autotune.searching.run.stage_timing import noted_diagnosis
from autotune.searching.run.stopping import end_reason
from autotune.searching.trials.baseline import baseline_prober
from autotune.searching.trials.trials import run_trials
from autotune.study.facts import Plan, StudyFacts
from autotune.study.identity import Identity, differences
from autotune.study.storage import (
    check_storage,
    disconnect,
    is_server,
    masked,
    opened,
    storage_errors,
)
from autotune.study.study import open_study
from autotune.values.errors import StudyMismatchError, UsageError
from autotune.values.outcome import Inspected, Observed

_DEADLINE_SECONDS = 600.0
_LOOK_SECONDS = 1.0
# Facts that are absent where there is no such file; the first is known of an inspected workload.
_MODULES, _FILES = "modules", "argument_files_sha256"
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


class StudyToJoin:
    """A study that admits workers, once `wait` has found it."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self.name = options.study
        self.facts = StudyFacts()

    @property
    def plan(self) -> Plan:
        """The options with which workers judge trials."""
        assert self.facts.plan is not None, "it was waited for"
        return self.facts.plan

    @property
    def identity(self) -> Identity:
        """The facts for which the study was made."""
        assert self.facts.identity is not None, "it was waited for"
        return self.facts.identity

    @property
    def script(self) -> ScriptOptions | None:
        """The call of the script: the worker's own arguments, and the search's options."""
        return _script_of(self._options, self.plan)

    def wait(self, stop: Stop, found: Inspected | None = None) -> Iterator[Warned]:
        """Poll the storage until a study of this model, and of the machine if found, is ready.

        Raises:
            StudyMismatchError: the study was made for something else.
            UsageError: the study is of the other kind of workload, or of several processes.
        """
        storage = opened(self._options.storage)
        said = False
        try:
            while not self._is_ready(storage, found):
                if not said:
                    yield Warned(f"no search of {self.name!r} has measured its baseline; waiting")
                    said = True
                stop.check()
                time.sleep(_LOOK_SECONDS)
        finally:
            disconnect(storage)

    def _is_ready(self, storage: BaseStorage, found: Inspected | None) -> bool:
        try:
            study = optuna.load_study(study_name=self.name, storage=storage)
        except KeyError:
            return False
        facts = StudyFacts(study.user_attrs)
        if facts.plan is None or facts.identity is None:
            return False
        self._check_kind(facts.identity)
        if changed := self._changed(facts.identity, facts.plan, found):
            raise StudyMismatchError(
                f"study {self.name!r} was made for something else:\n"
                + "\n".join(changed)
                + "\nWorkers need the same model and the same kind of machine. Where machines "
                "differ, search on each kind under a name of its own."
            )
        self.facts = facts
        return True

    def _check_kind(self, identity: Identity) -> None:
        name, path = self.name, self._options.model_path
        is_script = self._options.script is not None
        if identity.is_of_script and not is_script:
            raise UsageError(f"study {name!r} is of a script; to have {path} run as one, add --")
        if is_script and not identity.is_of_script:
            raise UsageError(f"study {name!r} is of a model.py, and {path} is run as a script.")
        if (count := identity.facts.get("processes", 1)) > 1:
            raise UsageError(
                f"study {name!r} trains in {count} processes; workers run trials of one."
            )

    def _changed(self, identity: Identity, plan: Plan, found: Inspected | None) -> list[str]:
        """Return the facts that differ, of those that a worker can find."""
        script = _script_of(self._options, plan)
        own = {"model_sha256": sha256_of(self._options.model_path), **_facts_of(found)}
        own |= {} if script is None else script.facts
        local = (_FILES,) if found is None else (_MODULES, _FILES)
        known = {name: identity.facts.get(name) for name in (*own, *local)}
        return differences(known, own)


def _facts_of(found: Inspected | None) -> Mapping[str, Any]:
    """Return what the study's identity says of the machine and of the workload's own modules."""
    if found is None:
        return {}
    modules = found.workload.local_modules if found.workload else {}
    return {**({_MODULES: modules} if modules else {}), "machine": found.machine.fingerprint}


def _script_of(options: WorkerOptions, ready: Plan) -> ScriptOptions | None:
    if options.script is None:
        return None
    told = ready.options.get("script", {"arguments": ()})
    known = TypeAdapter(ScriptOptions).validate_python(told)
    return replace(known, arguments=options.script.arguments)


def admit(search: SearchRun) -> None:
    """Store what workers need, if the study is shared; from now on they run trials."""
    if not search.study.is_shared:
        return
    context = search.context
    options = context.options.flat()
    told: dict[str, Any] = {name: options[name] for name in _TOLD}
    if (script := context.options.workload.script) is not None:
        told["script"] = replace(script, arguments=())  # which may hold secrets
    told[_TOLERANCE] = asdict(context.options.accuracy.tolerance)
    if not isinstance(told["sampler"], str):
        told["sampler"] = AUTO  # a sampler object cannot leave its process
    search.study.admit(told, context.trials)


def join(options: WorkerOptions, runner: Runner, stop: Stop) -> Iterator[Event]:
    """Run trials of the study until none is left.

    Raises:
        UsageError: the storage does not take several writers, or the study is of the other kind of
            workload.
        WorkloadError: the script cannot be observed.
        StudyMismatchError: this machine or model differs from the study's.
        FilesChangedError: a file of the training changed meanwhile.
        StorageError: the storage cannot be used.
    """
    check_storage(options.storage)
    if not is_server(options.storage):
        raise UsageError(
            f"--storage {masked(options.storage)} takes one writing process. Workers need a "
            "PostgreSQL server; on one host, `autotune search --devices` needs none."
        )
    files = WorkloadFiles(options.model_path, options.script)
    runner = UnchangedRunner(StoppableRunner(runner, stop), files)
    with storage_errors(options.storage):
        make_private(options.folder)
        study = StudyToJoin(options)
        if options.script is not None:  # which runs as the search says, and not before
            yield from study.wait(stop)
        started = time.monotonic()
        found, observed = _inspected(options, study, runner)
        seconds = max(0.0, time.monotonic() - started - found.dataset_seconds)
        if others := neighbours(found.device_uuid):
            yield Warned(shared_line(found.machine.device, others))
        yield from study.wait(stop, found)
        search = _search(options, study, found, runner)
        context = replace(
            search.context,
            observed=observed,
            start_seconds=seconds,
            dataset_seconds=found.dataset_seconds,
            is_dataset_shared=found.is_shared,
        )
        files.add_imports(context)
        search = replace(search, stop=stop, context=context)
        try:
            yield from _work(search)
        finally:
            search.study.disconnect()


def _inspected(
    options: WorkerOptions, study: StudyToJoin, runner: Runner
) -> tuple[Inspected, Observed | None]:
    """Inspect machine and workload; a script is observed for that, on the device that it takes."""
    if options.script is None:
        job = inspection(options.device.torch_name, options.model_path)
        return inspect(runner, job, options.own_folder / "inspect"), None
    folder = options.own_folder / "inspect" / "script"
    assert study.script is not None, "the study is of a script as well"
    known = study.identity
    shares = known.objective == THROUGHPUT.name and not known.facts.get("effects")
    job = observation(options.model_path, study.script, _DEADLINE_SECONDS, shares)
    observed = observe(runner, job, folder)
    check_device(observed, options.device.torch_name)
    found = inspect(runner, inspection_of_device(observed), options.own_folder / "inspect")
    return replace(found, workload=observed.workload), observed


def _search(
    options: WorkerOptions, joined: StudyToJoin, found: Inspected, runner: Runner
) -> SearchRun:
    """Return the search run for this device, with the options that the search noted."""
    ready, identity, script = joined.plan, joined.identity, joined.script
    assert identity.space is not None, "a search notes its space"
    assert identity.memory_limit_bytes is not None, "a search notes its limit"
    assert found.workload is not None
    folder = options.own_folder
    tolerance = Tolerance(**ready.options[_TOLERANCE])
    told = {**ready.options, _TOLERANCE: tolerance, "script": script}
    search = SearchOptions.of(
        model_path=options.model_path,
        study=joined.name,
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
    study = open_study(
        joined.name, options.storage, context.space, context.objective, options.worker
    )
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
