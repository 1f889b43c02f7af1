"""Open what runs the children of a command, and clean up behind them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

from autotune.console.interrupts import interrupts
from autotune.console.live import Mode, display
from autotune.console.progress import kept_files
from autotune.context.options import SearchOptions
from autotune.process.common.interpreter import Interpreter
from autotune.process.devices import Device, DeviceRunner, shared_cores
from autotune.process.runner import Runner, SubprocessRunner
from autotune.process.stop import Stop
from autotune.searching.trials.workers import WorkerOptions, join
from autotune.study.storage import check_storage, is_server
from autotune.values.errors import TooManyLostError, WorkloadError


@contextmanager
def scratch_folder() -> Iterator[Path]:
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


def one_runner(
    folder: Path, python: Interpreter, keep: Path | None = None, *, warm: bool = True
) -> SubprocessRunner:
    """Return what runs children with `python`; `folder` has its cache, `keep` changed files."""
    return SubprocessRunner(folder / "inductor", warm=warm, interpreter=python, keep=keep)


@contextmanager
def search_runners(
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
