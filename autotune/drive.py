"""Drives a search from the command line: runs it, shows it, and leaves nothing behind."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

from autotune.comparison import comparison_line, comparison_result
from autotune.errors import TooManyLostError, UsageError, WorkloadError
from autotune.interrupts import interrupts
from autotune.job import Measure, MeasurePlan, Profile
from autotune.live import Mode, display
from autotune.outcome import Diagnosed, Inspected, Measured, Profiled, as_failure, describe
from autotune.progress import (
    PlainProgress,
    plan_lines,
    recorded_line,
    result,
    round_line,
    stopped_lines,
    to_stderr,
)
from autotune.tables import show_profile
from autotune.text import span
from autotune.tuning.confirming.compare import ComparisonOptions, compare
from autotune.tuning.confirming.confirm import LOOKS
from autotune.tuning.confirming.rounds import Duel
from autotune.tuning.confirming.unconfirmed import path_so_far
from autotune.tuning.diagnosis import diagnosis_of, narrowed, time_stages
from autotune.tuning.events import Answered, NothingFeasible
from autotune.tuning.forecast import RUNS
from autotune.tuning.running.devices import Device, DeviceRunner
from autotune.tuning.running.record import record
from autotune.tuning.running.runner import Runner, SubprocessRunner
from autotune.tuning.running.stop import Stop
from autotune.tuning.scene import SearchOptions, inspect, inspection, survey
from autotune.tuning.search import search
from autotune.tuning.storing.lock import study_lock
from autotune.tuning.storing.storage import (
    check_storage,
    database_of,
    is_server,
    storage_errors,
)
from autotune.tuning.workers import WorkerOptions, join


def drive_search(
    options: SearchOptions, progress: Mode, as_json: bool, devices: Sequence[Device] = ()
) -> bool:
    """Run a search to its end, for a shell; whether it found anything feasible.

    Raises:
        AutotuneError: see `autotune.tuning.search.search`.
        KeyboardInterrupt, SystemExit: it was stopped; finished trials are in the study.
    """
    stop = Stop()
    try:
        with interrupts(stop):
            last = run_search(options, progress, devices, stop)
    except (KeyboardInterrupt, SystemExit):
        with suppress(OSError):  # that the terminal is gone may be why this ends
            _say_how_to_continue(options)
        raise
    if as_json:
        sys.stdout.write(result(last) + "\n")
    return isinstance(last, Answered)


def run_search(
    options: SearchOptions,
    progress: Mode,
    devices: Sequence[Device] = (),
    stop: Stop | None = None,
) -> Answered | NothingFeasible:
    """Run a search to its end, alone in its folder, and say on stderr what happens.

    On `devices` where any are named, all of them at the same time. Finished trials are kept however
    it ends.

    Raises:
        AutotuneError: see `autotune.tuning.search.search`.
        KeyboardInterrupt: a stop was asked for.
    """
    last: Answered | NothingFeasible | None = None
    stop = stop or Stop()
    with (
        study_lock(_folder_to_lock(options)),
        display(progress) as show,
        _runners(options, devices, stop) as (runner, mates),
    ):
        for event in search(options, runner, stop, mates):
            show(event)
            if isinstance(event, Answered | NothingFeasible):
                last = event
    assert last is not None
    return last


@contextmanager
def _runners(
    options: SearchOptions, devices: Sequence[Device], stop: Stop
) -> Iterator[tuple[Runner, dict[Device, Runner]]]:
    """What runs jobs: of the search itself, and on further devices.

    Where others may run trials on the same host, each waits until it has its device for itself.
    """
    cache = options.folder / "inductor"
    cancelled = stop.is_at_once
    with ExitStack() as opened:

        def runner(cores: Sequence[int]) -> SubprocessRunner:
            made = SubprocessRunner(cache, cores=cores, is_cancelled=cancelled)
            return opened.enter_context(made)

        check_storage(options.storage)
        if devices or is_server(options.storage):
            chosen = devices or [Device(options.device)]
            all_of_them = {one: DeviceRunner(runner(one.cores), one, stop) for one in chosen}
            first = all_of_them.pop(chosen[0])
            yield first, dict(all_of_them)
        else:
            yield runner(()), {}


def drive_worker(options: WorkerOptions, progress: Mode) -> None:
    """Run trials of a study that a search leads, until none is left.

    Raises:
        AutotuneError: see `autotune.tuning.workers.join`.
        KeyboardInterrupt, SystemExit: it was stopped.
    """
    show = (lambda _: None) if progress == "none" else PlainProgress().show
    stop = Stop()
    cache, cores = options.folder / "inductor", options.device.cores
    with (
        interrupts(stop),
        SubprocessRunner(cache, cores=cores, is_cancelled=stop.is_at_once) as runner,
    ):
        for event in join(options, DeviceRunner(runner, options.device, stop), stop):
            show(event)


def _folder_to_lock(options: SearchOptions) -> Path:
    """Where the study lies: two folders may share one SQLite file, which takes one writer."""
    check_storage(options.storage)
    database = database_of(options.storage)
    if database is None or not database.parent.is_dir():
        return options.folder
    return database.resolve().parent


def _say_how_to_continue(options: SearchOptions) -> None:
    so_far = path_so_far(options)
    command = shlex.join(["autotune", *sys.argv[1:]])  # shown without passwords, as every line
    for line in stopped_lines(command, so_far if so_far.exists() else None):
        to_stderr(line)


def show_plan(options: SearchOptions) -> None:
    """What a search would do and about how long it would take, without measuring anything."""
    with _scratch_folder() as folder:
        scene = survey(options, _one_run(folder), folder)
    trials = min(scene.trials, scene.space.size)
    processes = trials + RUNS + 2 * LOOKS[0]
    plan = MeasurePlan()
    fastest = processes * plan.looks[0] * plan.block_seconds
    slowest = processes * 2 * plan.max_seconds
    for line in plan_lines(scene):
        to_stderr(line)
    to_stderr(
        f"plan: {RUNS} processes for your settings, {trials} trials, at least {LOOKS[0]} rounds of "
        f"two processes to confirm\n"
        f"estimated: {span(fastest)} to {span(slowest)} of timing, besides the start of "
        f"{processes} processes, the accuracy probes and what torch.compile takes"
    )


def drive_comparison(options: ComparisonOptions, as_json: bool) -> bool:
    """Compare two configurations to the end; whether A is as fast as it is said to be.

    Raises:
        AutotuneError: see `autotune.tuning.confirming.compare.compare`.
    """
    duel = Duel()
    with _scratch_folder() as folder, SubprocessRunner(folder / "inductor") as runner:
        for duel in compare(options, runner, folder):
            to_stderr(round_line(duel.ratios, duel.interval))
    to_stderr(comparison_line(options, duel))
    if as_json:
        sys.stdout.write(comparison_result(options, duel) + "\n")
    return options.is_met(duel)


def drive_recording(options: SearchOptions, repeats: int) -> None:
    """Record a table to its end.

    Raises:
        AutotuneError: see `autotune.tuning.running.record.record`.
    """
    start = time.monotonic()
    before: int | None = None
    with (
        storage_errors(None),
        _scratch_folder() as folder,
        SubprocessRunner(folder / "inductor") as runner,
    ):
        for recorded in record(replace(options, folder=folder), runner, repeats):
            before = recorded.done - 1 if before is None else before
            each = (time.monotonic() - start) / (recorded.done - before)
            to_stderr(recorded_line(recorded, each * (recorded.total - recorded.done)))


def drive_profile(options: SearchOptions, trace: Path | None) -> None:
    """Show what bounds training and what takes its time; into `trace` go the steps themselves.

    Raises:
        UsageError: no trace can be written there.
        WorkloadError: the workload fails with the user's own settings.
    """
    _check_trace(trace)
    with _scratch_folder() as folder, SubprocessRunner(folder / "inductor") as runner:
        scene = survey(replace(options, folder=folder), runner)
        stages = time_stages(scene, runner)
        # The profiler does not say when it cannot write: it writes here, and what is here is kept.
        written = folder / f"trace.json{'.gz' * (trace is not None and trace.suffix == '.gz')}"
        task = Profile(trace_path=None if trace is None else str(written.resolve()))
        profiled = runner.run(scene.job(task, scene.baseline), folder / "trials" / "profile")
        whole = runner.run(
            scene.job(Measure(MeasurePlan()), scene.baseline), folder / "trials" / "whole"
        )
        if not (isinstance(stages, Diagnosed) and isinstance(profiled, Profiled)):
            knows_stages = isinstance(stages, Diagnosed)
            failure = as_failure(profiled if knows_stages else stages)
            log = folder / "trials" / ("profile" if knows_stages else "diagnosis") / "stderr.log"
            raise WorkloadError(
                f"{options.model_path} cannot be profiled: {describe(failure)}\nWhole log: {log}"
            )
        rate = whole.measurement.samples_per_second if isinstance(whole, Measured) else None
        diagnosis = diagnosis_of(scene, stages, rate)
        notes = narrowed(scene.space, diagnosis).notes
        own = [note for note in notes if note not in scene.space.notes]
        show_profile(diagnosis, own, profiled)
        if trace is not None:
            _keep_trace(written, trace)


def _check_trace(trace: Path | None) -> None:
    if trace is not None and trace.is_dir():
        raise UsageError(
            f"--trace {trace} is a folder. Name a file, such as {trace / 'trace.json'}."
        )
    if trace is not None and not trace.parent.is_dir():
        raise UsageError(f"--trace {trace}: there is no folder {trace.parent}. Make it first.")


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


def inspect_once(device: str, model: Path | None) -> Inspected:
    """What this machine allows and, with a model, what the workload is.

    Raises:
        AutotuneError: see `autotune.tuning.scene.inspect`.
    """
    with _scratch_folder() as folder:
        return inspect(_one_run(folder), inspection(device, model), folder)


def _one_run(folder: Path) -> SubprocessRunner:
    """A runner for a single job, which a warm host would not make any faster."""
    return SubprocessRunner(folder / "inductor", warm=False)


@contextmanager
def _scratch_folder() -> Iterator[Path]:
    """A folder that is gone afterwards, except after an error whose message names a log in it."""
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
