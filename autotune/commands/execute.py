"""Run searches, workers, comparisons and profiles for the command line: show, then clean up."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

from autotune.comparison.compare import ComparisonOptions, compare
from autotune.comparison.rounds import PairedComparison
from autotune.configuration.job import Measure, MeasurePlan, Profile
from autotune.console.answer_lines import (
    answer_lines,
    comparison_line,
    comparison_result,
    last_round_line,
    not_enough_result,
    result,
)
from autotune.console.interrupts import interrupts
from autotune.console.live import Mode, display
from autotune.console.plan_lines import estimate, plan_lines, written_lines
from autotune.console.progress import answer, kept_files, signs_of_life, stopped_lines, to_stderr
from autotune.console.tables import show_profile
from autotune.context.budget_clock import BudgetedRunner, Clock
from autotune.context.inspection import inspect, inspection
from autotune.context.options import SearchOptions, time_budget_of
from autotune.context.search_context import SearchContext, survey
from autotune.process.common.interpreter import Interpreter
from autotune.process.devices import Device, DeviceRunner, shared_cores
from autotune.process.runner import Runner, SubprocessRunner
from autotune.process.stop import Stop
from autotune.searching.confirmation.conclusion import path_so_far
from autotune.searching.run.diagnosis import diagnosis_of, narrowed, time_stages
from autotune.searching.run.events import Answered, NothingFeasible
from autotune.searching.search import search
from autotune.searching.trials.workers import WorkerOptions, join
from autotune.study.storage import check_storage, file_of, is_server, study_lock
from autotune.values.errors import (
    NotSearchedEnoughError,
    TooManyLostError,
    UsageError,
    WorkloadError,
)
from autotune.values.outcome import (
    Diagnosed,
    Inspected,
    Measured,
    Observed,
    Profiled,
    as_failure,
    describe,
)


def execute_search(
    options: SearchOptions, progress: Mode, as_json: bool, devices: Sequence[Device] = ()
) -> bool:
    """Run a search to its end for a shell; return True if it found anything feasible.

    Raises:
        AutotuneError: see `autotune.searching.search.search`.
        KeyboardInterrupt, SystemExit: the search was stopped; finished trials are in the study.
    """
    stop = Stop()
    try:
        with interrupts(stop):
            last = run_search(options, progress, devices, stop)
    except NotSearchedEnoughError as error:
        if as_json:
            sys.stdout.write(not_enough_result(error) + "\n")
        raise
    except (KeyboardInterrupt, SystemExit):
        with suppress(OSError):  # that the terminal is gone may be why this ends
            _say_how_to_continue(options)
        raise
    data = result(last) if as_json else None
    answer(answer_lines(last), data, quiet=progress == "none")
    return isinstance(last, Answered)


def run_search(
    options: SearchOptions,
    progress: Mode,
    devices: Sequence[Device] = (),
    stop: Stop | None = None,
) -> Answered | NothingFeasible:
    """Run a search to its end, with its folder locked, and report events on stderr.

    Trials run on all `devices` at the same time, if any are named. Finished trials are kept however
    the search ends.

    Raises:
        AutotuneError: see `autotune.searching.search.search`.
        KeyboardInterrupt: a stop was requested.
    """
    last: Answered | NothingFeasible | None = None
    stop = stop or Stop()
    with (
        study_lock(_folder_to_lock(options)),
        display(progress) as show,
        kept_files(options.study.folder) as keep,
        _runners(options, devices, stop, keep) as (runner, extra_devices),
    ):
        for event in search(options, runner, stop, extra_devices):
            show(event)
            if isinstance(event, Answered | NothingFeasible):
                last = event
    assert last is not None
    return last


@contextmanager
def _runners(
    options: SearchOptions, devices: Sequence[Device], stop: Stop, keep: Path
) -> Iterator[tuple[Runner, dict[Device, Runner]]]:
    """Open the runner of the search and those of extra devices.

    If others may run trials on the same host, each runner waits until its device is free.
    """
    cache = options.study.folder / "inductor"
    with ExitStack() as opened:

        def runner(environ: Mapping[str, str]) -> SubprocessRunner:
            made = SubprocessRunner(
                cache,
                environ=environ,
                is_cancelled=stop.is_at_once,
                interpreter=options.workload.interpreter,
                keep=keep,
            )
            return opened.enter_context(made)

        check_storage(options.study.storage)
        if not devices and not is_server(options.study.storage):
            yield runner({}), {}
            return
        chosen = devices or [Device(options.resources.device)]
        cores = shared_cores(chosen)
        first, *others = (
            DeviceRunner(runner(replace(device, cores=cores[device]).environ), device, stop)
            for device in chosen
        )
        yield first, dict(zip(chosen[1:], others, strict=True))


def execute_worker(options: WorkerOptions, progress: Mode) -> None:
    """Run trials of a study that another process searches, until none is left.

    Raises:
        AutotuneError: see `autotune.searching.trials.workers.join`.
        KeyboardInterrupt, SystemExit: the worker was stopped.
    """
    stop = Stop()
    cache, device = options.folder / "inductor", options.device
    with (
        interrupts(stop),
        display("none" if progress == "none" else "plain") as show,
        kept_files(options.folder) as keep,
        SubprocessRunner(
            cache,
            environ=device.environ,
            is_cancelled=stop.is_at_once,
            interpreter=options.python,
            keep=keep,
        ) as runner,
    ):
        for event in join(options, DeviceRunner(runner, device, stop), stop):
            show(event)


def _folder_to_lock(options: SearchOptions) -> Path:
    """Return the folder of the study, or of its SQLite file, which allows one writer."""
    check_storage(options.study.storage)
    database = file_of(options.study.storage)
    if database is None or not database.parent.is_dir():
        return options.study.folder
    return database.resolve().parent


def _say_how_to_continue(options: SearchOptions) -> None:
    so_far = path_so_far(options)
    command = shlex.join(["autotune", *sys.argv[1:]])  # to_stderr masks passwords
    for line in stopped_lines(command, so_far if so_far.exists() else None):
        to_stderr(line)


def show_plan(options: SearchOptions) -> None:
    """Print the plan of a search and an estimate of its time, without measuring anything.

    Raises:
        AutotuneError: see `survey`, or inspecting the workload took longer than the time budget.
    """
    clock = Clock(time_budget_of(options))
    with _scratch_folder() as folder, kept_files() as keep, signs_of_life(""):
        runner = _runner(folder, options.workload.interpreter, keep, warm=False)
        context = survey(options, BudgetedRunner(runner, clock), folder)
    for line in plan_lines(context):
        to_stderr(line)
    if context.observed is None:
        to_stderr(estimate(context))
    to_stderr("before its trials, a search leaves out what its diagnosis says cannot matter")


def execute_comparison(options: ComparisonOptions, as_json: bool) -> bool:
    """Compare two configurations to the end; return True if A is as fast as claimed.

    Raises:
        AutotuneError: see `autotune.comparison.compare.compare`.
    """
    comparison = PairedComparison()
    with (
        _scratch_folder() as folder,
        kept_files() as keep,
        _runner(folder, options.python, keep) as runner,
        signs_of_life("a round") as write,
    ):

        def tell(seen: Observed, notes: Sequence[str]) -> None:
            lines = written_lines(options, seen, options.processes)
            write("\n".join([*lines, *(f"  {note}" for note in notes)]))

        for now in compare(options, runner, folder, tell):
            write(last_round_line(comparison, now))
            comparison = now
    data = comparison_result(options, comparison) if as_json else None
    answer([comparison_line(options, comparison)], data)
    return options.is_met(comparison)


def execute_profile(options: SearchOptions, trace: Path | None) -> None:
    """Show the stage that bounds training and the costly operators; write the steps to `trace`.

    Raises:
        UsageError: the trace cannot be written, or there is none.
        WorkloadError: the workload fails with the user's settings.
    """
    with (
        _scratch_folder() as folder,
        kept_files() as keep,
        _runner(folder, options.workload.interpreter, keep) as runner,
    ):
        # The profiler does not report failed writes. It writes here; a file found here is copied.
        written = folder / f"trace.json{'.gz' * (trace is not None and trace.suffix == '.gz')}"
        task = Profile(trace_path=None if trace is None else str(written.resolve()))
        with signs_of_life("the profile") as write:
            script = options.workload.script
            workload = replace(options.workload, script=script and script.profiled(task.trace_path))
            study = replace(options.study, folder=folder)
            context = survey(replace(options, study=study, workload=workload), runner)
            for line in written_lines(options.workload, context.observed, context.processes):
                write(line)
            stages = time_stages(context, runner)
            profiled = (context.observed and context.observed.profiled) or runner.run(
                context.job(task, context.baseline), folder / "trials" / "profile"
            )
            rate = _rate(context, runner, folder / "trials" / "whole")
        # A script's operators are of use without its stages.
        is_told = isinstance(stages, Diagnosed) or context.observed is not None
        if not (is_told and isinstance(profiled, Profiled)):
            failure = as_failure(profiled if is_told else stages)
            log = folder / "trials" / ("profile" if is_told else "diagnosis") / "stderr.log"
            raise WorkloadError(
                f"{options.workload.model_path} cannot be profiled: {describe(failure)}\n"
                f"Whole log: {log}"
            )
        if isinstance(stages, Diagnosed):
            diagnosis, known = diagnosis_of(context, stages, rate), context.space.notes
            notes = narrowed(context.space, diagnosis).notes
            show_profile(diagnosis, [note for note in notes if note not in known], profiled)
        else:
            show_profile(None, [f"{describe(stages)}."], profiled)
        if trace is not None:
            _keep_trace(written, trace)


def _rate(context: SearchContext, runner: Runner, folder: Path) -> float | None:
    """Return the samples per second of training as a whole; None if it cannot be timed."""
    if context.observed is not None:
        return context.observed.samples_per_second
    whole = runner.run(context.job(Measure(MeasurePlan()), context.baseline), folder)
    return whole.measurement.samples_per_second if isinstance(whole, Measured) else None


def _keep_trace(written: Path, trace: Path) -> None:
    if not written.is_file():
        raise UsageError(
            f"--trace {trace}: the profiler wrote no trace into {written.parent}. Free some space "
            "there, or name another folder with TMPDIR."
        )
    try:
        shutil.copyfile(written, trace)
    except OSError as error:
        raise UsageError(
            f"--trace {trace} cannot be written: {error.strerror}. Name another file."
        ) from error
    to_stderr(f"Wrote {trace}")


def inspect_once(device: str, model: Path | None, python: Interpreter) -> Inspected:
    """Return facts on this machine and, with a model, on the workload.

    Raises:
        AutotuneError: see `autotune.context.inspection.inspect`.
    """
    with _scratch_folder() as folder, signs_of_life("" if model else "a look at the machine"):
        return inspect(_runner(folder, python, warm=False), inspection(device, model), folder)


def _runner(
    folder: Path, python: Interpreter, keep: Path | None = None, *, warm: bool = True
) -> SubprocessRunner:
    return SubprocessRunner(folder / "inductor", warm=warm, interpreter=python, keep=keep)


@contextmanager
def _scratch_folder() -> Iterator[Path]:
    """Yield a temporary folder; keep it after an error whose message names a log in it."""
    folder = Path(mkdtemp(prefix="autotune-"))
    keep = False
    try:
        yield folder
    except (WorkloadError, TooManyLostError):
        keep = True
        raise
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
