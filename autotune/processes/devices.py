"""The devices that trials run on, one trial at a time on each device of this host."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from autotune.configuration.job import Inspect, Job
from autotune.processes.device_locks import device_locks, lock_names, visible_devices
from autotune.processes.runner import Runner
from autotune.processes.stop import Stop
from autotune.values.errors import UsageError
from autotune.values.outcome import Inspected, TrialOutcome

_CORES = re.compile(r"cpu:(\d+)(?:-(\d+))?")


@dataclass(frozen=True, slots=True)
class Device:
    """One device, or some cores of the CPU."""

    name: str
    """Name on the command line: "cuda:1", "cpu:0-3"."""
    cores: tuple[int, ...] = ()
    """Cores of the CPU; empty for all of them, and for accelerators."""

    @property
    def torch_name(self) -> str:
        """Name as torch spells it: "cuda:1", "cpu"."""
        return "cpu" if self.cores else self.name

    @property
    def folder_name(self) -> str:
        """Name of the folder for its trials."""
        return self.name.replace(":", "-")

    def locks(self, uuid: str = "") -> tuple[str, ...]:
        """Return the names of the locks that a trial on it needs; see `lock_names`."""
        cores = self.cores or (sorted(os.sched_getaffinity(0)) if self.name == "cpu" else ())
        return lock_names(self.torch_name, cores, uuid, visible_devices())


def devices_of(text: str) -> tuple[Device, ...]:
    """Parse a list of devices such as "cuda:0,cuda:1" or "cpu:0-3,cpu:4-7".

    Raises:
        UsageError: it names a device twice, cores that do not exist, or devices of several kinds.
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


class DeviceRunner:
    """A wrapper of a runner that waits until no other process of this host uses the device.

    Numbers of accelerators differ between processes, so the child that inspects one reports its
    UUID. That child times nothing and takes no lock.
    """

    def __init__(self, runner: Runner, device: Device, stop: Stop | None = None) -> None:
        """Wrap `runner`; waiting ends if `stop` is asked to end the running trial."""
        self._runner = runner
        self._device = device
        self._stop = stop or Stop()
        self._locks = device.locks()

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """Wait for the device, run the job and return its outcome.

        Raises:
            KeyboardInterrupt: the search was asked to end at once while it waited.
            StorageError: this system has no such locks.
        """
        if not isinstance(job.task, Inspect):
            with device_locks(self._locks, self._check):
                return self._runner.run(job, folder)
        outcome = self._runner.run(job, folder)
        if isinstance(outcome, Inspected) and not self._device.cores:
            self._locks = Device(outcome.machine.device).locks(outcome.device_uuid)
        return outcome

    def _check(self) -> None:
        if self._stop.is_at_once():
            raise KeyboardInterrupt
