"""The devices that trials run on, and that each of them runs one at a time on this host."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from autotune.errors import UsageError
from autotune.job import Inspect, Job
from autotune.outcome import Inspected, TrialOutcome
from autotune.tuning.running.device_locks import device_locks, lock_names, visible_devices
from autotune.tuning.running.runner import Runner
from autotune.tuning.running.stop import Stop

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

    def locks(self, uuid: str = "") -> tuple[str, ...]:
        """Names for all of it that only one trial at a time may use; see `lock_names`."""
        cores = self.cores or (sorted(os.sched_getaffinity(0)) if self.name == "cpu" else ())
        return lock_names(self.torch_name, cores, uuid, visible_devices())


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


class DeviceRunner:
    """Another runner that waits until nobody else of this host uses its device.

    Numbers of accelerators differ from process to process, so a child that inspects one says which
    it is. That child times nothing, and waits for nobody.
    """

    def __init__(self, runner: Runner, device: Device, stop: Stop | None = None) -> None:
        """Waiting ends where `stop` is asked to end what runs."""
        self._runner = runner
        self._device = device
        self._stop = stop or Stop()
        self._locks = device.locks()

    def run(self, job: Job, folder: Path) -> TrialOutcome:
        """The other's outcome.

        Raises:
            KeyboardInterrupt: the search was asked to end at once while it waited.
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
