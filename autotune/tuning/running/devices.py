"""The devices that trials run on, and that each of them runs one at a time on this host."""

from __future__ import annotations

import fcntl
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from autotune.errors import StorageError, UsageError
from autotune.job import Job
from autotune.outcome import TrialOutcome
from autotune.tuning.running.runner import Runner

_CORES = re.compile(r"cpu:(\d+)(?:-(\d+))?")


@dataclass(frozen=True, slots=True)
class Device:
    """One device, or some cores of the CPU."""

    name: str
    """As a person gives it: "cuda:1", "cpu:0-3"."""
    cores: tuple[int, ...] = ()
    """Of the CPU; none for all of them."""

    @property
    def torch_name(self) -> str:
        """As torch spells it."""
        return "cpu" if self.cores else self.name

    @property
    def folder_name(self) -> str:
        """For the files of its trials."""
        return self.name.replace(":", "-")

    def locks(self) -> list[str]:
        """A name for all that only one trial at a time may use, in one order for everybody."""
        if self.cores or self.name == "cpu":
            return [f"cpu-{core}" for core in self.cores or sorted(os.sched_getaffinity(0))]
        kind, _, index = self.name.partition(":")
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        if kind == "cuda" and index.isdigit() and int(index) < len(visible):
            index = visible[int(index)] or index
        return [f"{kind}-{re.sub('[^A-Za-z0-9-]', '-', index or '0')}"]


def devices_of(text: str) -> tuple[Device, ...]:
    """The devices of a list such as "cuda:0,cuda:1" or "cpu:0-3,cpu:4-7".

    Raises:
        UsageError: it names one twice, cores that are not there, or devices of several kinds.
    """
    devices = tuple(_device(part.strip()) for part in text.split(","))
    faults = []
    if len({device.torch_name.partition(":")[0] for device in devices}) > 1:
        faults.append("these are devices of several kinds, whose trials cannot be compared")
    if len({len(device.cores) for device in devices}) > 1:
        faults.append("each has to have as many cores as the others")
    held = [lock for device in devices for lock in device.locks()]
    twice = sorted({lock for lock in held if held.count(lock) > 1})
    if twice:
        faults.append(f"{', '.join(twice)} would be used by two trials at once")
    if faults:
        raise UsageError(f"--devices {text}: {'; '.join(faults)}.")
    return devices


def _device(name: str) -> Device:
    match = _CORES.fullmatch(name)
    if not match:
        if name in ("", "auto") or name.startswith("cpu:"):
            raise UsageError(f"--devices: {name!r} is no device; write cuda:0 or cpu:0-3.")
        return Device(name)
    first, last = int(match[1]), int(match[2] or match[1])
    cores = tuple(range(first, last + 1))
    allowed = os.sched_getaffinity(0)
    missing = [core for core in cores if core not in allowed]
    if missing or not cores:
        raise UsageError(
            f"--devices: {name} has cores that this process may not use; "
            f"it may use {', '.join(map(str, sorted(allowed)))}."
        )
    return Device(name, cores)


@dataclass(frozen=True)
class DeviceRunner:
    """Another runner that waits until nobody else of this host uses its device."""

    runner: Runner
    device: Device

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """The other's outcome."""
        with device_lock(self.device):
            return self.runner.run(job, folder)


@contextmanager
def device_lock(device: Device) -> Iterator[None]:
    """Hold a device while the block runs; sleeps while somebody else holds it.

    Raises:
        StorageError: there is no folder for locks.
    """
    folder = _lock_folder()
    with ExitStack() as held:
        for name in device.locks():
            file = held.enter_context((folder / f"{name}.lock").open("ab"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _lock_folder() -> Path:
    """A folder of this user's alone that all processes of the host share."""
    own = f".autotune-locks-{os.getuid()}"
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    for parent in (*([Path(runtime)] if runtime else []), Path(tempfile.gettempdir())):
        folder = parent / own
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
        except OSError:
            continue
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
            return folder
    raise StorageError(
        f"there is no folder for locks on devices: {Path(tempfile.gettempdir()) / own} cannot be "
        "made, or is not yours. Set XDG_RUNTIME_DIR to a folder of your own."
    )
