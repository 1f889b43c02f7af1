"""Open the runners of a command, and clean up after them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from types import MappingProxyType

from autotune.commands.common import COMPILED
from autotune.context.options import SearchOptions
from autotune.process.devices import Device, DeviceRunner, shared_cores
from autotune.process.runner import Runner, SubprocessRunner
from autotune.process.stop import Stop
from autotune.study.storage import check_storage, is_server
from autotune.values.errors import TooManyLostError, WorkloadError


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a temporary directory; keep it after an error whose message names a log in it."""
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
    folder: Path,
    keep: Path | None = None,
    *,
    warm: bool = True,
    environ: Mapping[str, str] = MappingProxyType({}),
    stop: Stop | None = None,
) -> SubprocessRunner:
    """Return a runner of children; `folder` has its cache, `keep` changed files."""
    cancelled = (stop or Stop()).is_at_once
    return SubprocessRunner(folder / COMPILED, warm, environ, cancelled, keep)


def environs(devices: Sequence[Device]) -> list[dict[str, str]]:
    """Return the variables by which processes keep to each device and its share of the cores."""
    cores = shared_cores(devices)
    return [replace(one, cores=cores[one]).environ for one in devices]


@contextmanager
def search_runners(
    options: SearchOptions, devices: Sequence[Device], stop: Stop, keep: Path
) -> Iterator[tuple[Runner, dict[Device, Runner]]]:
    """Open the runner of the search and those of extra devices.

    Each runner waits for its device if one is named, or if others may run trials on this host.
    """
    folder = options.study.folder
    check_storage(options.study.storage)
    waits = ":" in options.resources.device or is_server(options.study.storage)
    chosen = devices or [Device(options.resources.device)]
    with ExitStack() as opened:
        own = [
            opened.enter_context(one_runner(folder, keep, environ=environ, stop=stop))
            for environ in environs(chosen)
        ]
        if not devices and not waits:
            yield own[0], {}
            return
        pairs = zip(chosen, own, strict=True)
        runners = [DeviceRunner(runner, device, stop) for device, runner in pairs]
        yield runners[0], dict(zip(chosen[1:], runners[1:], strict=True))
