"""Workers: processes on further devices or hosts that run trials of a search's study.

The search measures the baseline and stores the options by which trials are judged. A worker waits
for them, and checks that it has the same model, arguments and kind of machine: what can be compared
before anything runs is compared first. They share nothing but Optuna's storage, on a server.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage
from pydantic import TypeAdapter

from autotune.configuration.constraints import Tolerance
from autotune.configuration.mismatch import sha256_of
from autotune.configuration.script import Judge, ScriptOptions
from autotune.context.inspection import Looked, check_device, look
from autotune.context.options import Resources, SearchOptions, WorkloadOptions
from autotune.context.script_ways import Wanted
from autotune.context.search_context import SearchContext
from autotune.context.workload import UnchangedRunner, WorkloadFiles
from autotune.process.common.trial_folder import make_private
from autotune.process.devices import Device
from autotune.process.runner import Runner
from autotune.process.stop import Stop, StoppableRunner
from autotune.sampling.samplers import AUTO
from autotune.searching.run.coverage import end_reason
from autotune.searching.run.diagnosis import noted_diagnosis
from autotune.searching.run.events import Event, PhaseStarted, Planned, TrialsEnded, Warned
from autotune.searching.run.search_run import SearchRun
from autotune.searching.trials.trials import run_trials
from autotune.study import storage as storages
from autotune.study.facts import Identity, Plan, StudyFacts, differences
from autotune.study.study import open_study
from autotune.values.errors import StudyMismatchError, UsageError

_LOOK_SECONDS = 1.0
# A fact that is absent where there is no such file.
_FILES = "argument_files_sha256"
# Options of the search on which trials depend, besides the study's identity.
_TOLERANCE, _SCRIPT, _JUDGE = "accuracy_tolerance", "script", "judge"
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
    "fresh_data",
)


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Options of a worker, as the user gave them."""

    study: str
    storage: str
    workload: WorkloadOptions
    """The file, and the script's arguments; its other options are the search's."""
    folder: Path
    """Folder of the study on this host."""
    device: Device

    @property
    def worker(self) -> str:
        """Name of this process among the workers of all hosts."""
        return f"{socket.gethostname()}-{os.getpid()}"

    @property
    def own_folder(self) -> Path:
        """Folder of this process alone; others may have the same `folder`."""
        return self.folder / "workers" / self.worker


@dataclass(frozen=True)
class Joined:
    """A study that admits workers: what the search stored for them."""

    identity: Identity
    plan: Plan
    script: ScriptOptions | None
    """The call of the script: the worker's own arguments, and the search's options."""
    judge: Judge
    """Quality metric that the search found."""
    call: Mapping[str, object]
    """Facts on the script's call that its study has as well; none of a model.py."""


def _wait(options: WorkerOptions, stop: Stop) -> Generator[Warned, None, Joined]:
    """Poll the storage until the study admits workers; refuse one of another kind."""
    storage = storages.opened(options.storage)
    said = False
    try:
        while (joined := _ready(options, storage)) is None:
            if not said:
                yield Warned(f"waiting for a search of {options.study!r} to measure its baseline")
                said = True
            stop.check()
            time.sleep(_LOOK_SECONDS)
    finally:
        storages.disconnect(storage)
    return joined


def _ready(options: WorkerOptions, storage: BaseStorage) -> Joined | None:
    """Return what the study has for workers; None if it admits none yet."""
    try:
        study = optuna.load_study(study_name=options.study, storage=storage)
    except KeyError:
        return None
    facts = StudyFacts(study.user_attrs)
    if "plan" not in facts.attributes:
        return None
    facts.check()
    identity, plan, script = facts.identity, facts.plan, options.workload.script
    if plan is None or identity is None:
        return None
    name, path = options.study, options.workload.model_path
    is_script = script is not None
    if ("script" in identity.facts) != is_script:
        other = "a script; to run {} as one, add --", "a model.py, and {} is run as a script."
        raise UsageError(f"study {name!r} is of {other[is_script].format(path)}")
    if (count := identity.facts.get("processes", 1)) > 1:
        raise UsageError(f"study {name!r} trains in {count} processes; workers train in one.")
    judge = TypeAdapter(Judge).validate_python(plan.options[_JUDGE])
    if script is None:
        return Joined(identity, plan, None, judge, {})
    known = TypeAdapter(ScriptOptions).validate_python(plan.options[_SCRIPT])
    script = replace(known, arguments=script.arguments)
    return Joined(identity, plan, script, judge, script.identity(judge))


def _compare(options: WorkerOptions, joined: Joined, found: Looked | None = None) -> None:
    """Refuse a study that was made for something else than what a worker finds."""
    own: dict[str, Any] = {"model_sha256": sha256_of(options.workload.model_path)}
    if found is not None:
        own["machine"] = found.inspected.machine.fingerprint
        own["modules"] = found.traits.facts.local_modules or None
    own |= joined.call
    known = {name: joined.identity.facts.get(name) for name in (*own, _FILES)}
    if changed := differences(known, own):
        raise StudyMismatchError(
            f"study {options.study!r} was made for something else:\n"
            + "\n".join(changed)
            + "\nWorkers need the same model and the same kind of machine. Where machines "
            "differ, search on each kind under another --study NAME."
        )


def admit(search: SearchRun) -> None:
    """Store what workers need, if the study is shared; from now on they run trials."""
    if not search.study.is_shared:
        return
    context = search.context
    options = context.options.flat()
    told: dict[str, Any] = {name: options[name] for name in _TOLD}
    script = replace(context.traits.script, arguments=())  # which may hold secrets
    told |= {_SCRIPT: script, _JUDGE: context.judge}
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
    storages.check_storage(options.storage)
    if not storages.is_server(options.storage):
        raise UsageError(
            f"--storage {storages.masked(options.storage)} takes one writing process. Workers need "
            "a database server; on one host, `autotune search --device` needs none."
        )
    files = WorkloadFiles(options.workload)
    runner = UnchangedRunner(StoppableRunner(runner, stop), files)
    with storages.storage_errors(options.storage):
        make_private(options.folder)
        joined = yield from _wait(options, stop)
        _compare(options, joined)
        workload = replace(options.workload, script=joined.script)
        resources, folder = Resources(options.device.torch_name), options.own_folder / "inspect"
        found = look(workload, resources, runner, folder, Wanted())
        check_device(found.traits.seen, options.device.torch_name)
        _compare(options, joined, found)
        context = _context(options, joined, found)
        files.add_imports(context.facts)
        study = open_study(options.study, options.storage, context.space, context.objective)
        study.check_identity(joined.identity.facts)
        # The search itself decides when trials are no longer worth their time.
        name = f"@{options.worker}"
        search = SearchRun(context, runner, study, may_settle=False, stop=stop, worker=name)
        try:
            if (noted := noted_diagnosis(context, study)) is not None:
                search = search.narrowed_by(noted)
            yield Planned(search.context, len(study.finished()))
            yield PhaseStarted("search", f"running trials of {study.name}")
            yield from run_trials(search, {})
            yield TrialsEnded(end_reason(search) or "the search needs no more trials")
        finally:
            study.disconnect()


def _context(options: WorkerOptions, joined: Joined, found: Looked) -> SearchContext:
    """Return the context of trials on this device, with the options that the search noted."""
    plan, identity, inspected = joined.plan, joined.identity, found.inspected
    assert identity.space is not None, "a search notes its space"
    assert identity.memory_limit_bytes is not None, "a search notes its limit"
    folder, told = options.own_folder, dict(plan.options)
    told |= {_TOLERANCE: Tolerance(**told[_TOLERANCE]), _SCRIPT: joined.script}
    del told[_JUDGE]
    search = SearchOptions.of(
        model_path=options.workload.model_path,
        study=options.study,
        storage=options.storage,
        folder=folder,
        out=folder / "best.yaml",
        trials=plan.trials,
        **told,
    )
    return SearchContext(
        options=search,
        machine=inspected.machine,
        traits=replace(found.traits, judge=joined.judge),
        baseline=identity.baseline,
        space=identity.space,
        trials=plan.trials,
        memory_limit_bytes=identity.memory_limit_bytes,
        start_seconds=found.start_seconds,
        dataset_seconds=inspected.dataset_seconds,
        is_dataset_shared=inspected.is_shared,
    )
