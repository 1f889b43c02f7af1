"""Workers: processes on further devices or hosts that run trials of a search's study.

The search measures the baseline and notes the options by which trials are judged. A worker reads
them, and checks that it has the same model and the same kind of machine. They share nothing but
Optuna's storage.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from autotune.configuration.accuracy_rule import Tolerance
from autotune.configuration.constraints import THROUGHPUT
from autotune.context.inspection import inspect, inspection, inspection_of_device
from autotune.context.options import SearchOptions
from autotune.context.script_facts import check_device, observation, observe
from autotune.context.search_context import SearchContext
from autotune.context.workload_files import UnchangedRunner, WorkloadFiles
from autotune.process.common.trial_folder import make_private
from autotune.process.devices import neighbours, shared_line
from autotune.process.runner import Runner
from autotune.process.stop import Stop, StoppableRunner
from autotune.sampling.samplers import AUTO
from autotune.searching.run.events import Event, PhaseStarted, Planned, TrialsEnded, Warned
from autotune.searching.run.search_run import Accuracy, SearchRun
from autotune.searching.run.stage_timing import noted_diagnosis
from autotune.searching.run.stopping import end_reason
from autotune.searching.trials.baseline import baseline_prober
from autotune.searching.trials.study_to_join import StudyToJoin, WorkerOptions
from autotune.searching.trials.trials import run_trials
from autotune.storage.database import (
    check_storage,
    is_shared,
    masked,
    storage_errors,
)
from autotune.storage.journal import Journal
from autotune.storage.note_types import Workers
from autotune.study.opening import open_study
from autotune.values.errors import UsageError
from autotune.values.outcome import Inspected, Observed

_DEADLINE_SECONDS = 600.0
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


def admit(search: SearchRun) -> None:
    """Note what workers need, if the study is shared; from now on they run trials."""
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
    search.study.notes.workers = Workers(told, context.trials)


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
    if not is_shared(options.storage):
        raise UsageError(
            f"--storage {masked(options.storage)} takes one writing process. Workers need a file "
            "that they share, journal:///study.log, or a PostgreSQL server; on one host, "
            "`autotune search --devices` needs none."
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
    ready, identity, script = joined.workers, joined.identity, joined.script
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
    journal = Journal(options.folder)
    study = open_study(joined.name, options.storage, context.space, context.objective, journal)
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
