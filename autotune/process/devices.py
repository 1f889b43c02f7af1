"""The devices that trials run on, and their locks.

One trial at a time runs on each device of a host, by locks that all its processes and users share.
A lock is a Unix socket with a name in Linux' abstract namespace, which is no file. One process at a
time can be bound to it, and the kernel releases it when the process ends. So no folder has to be
agreed on, no cleaner of temporary files removes a lock, and no crash leaves one behind.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.configuration.job import Inspect, Job
from autotune.process.common.child_ties import environ_for
from autotune.process.runner import Runner
from autotune.process.stop import Stop
from autotune.values.errors import UsageError
from autotune.values.outcome import Inspected, TrialOutcome
from autotune.values.text import size

_CORES = re.compile(r"cpu:(\d+)(?:-(\d+))?")
_LOCK_PREFIX = "\0autotune/device/"
_LONGEST_LOCK = 80
_LOCK_POLL_SECONDS = 0.2
_CARD = re.compile(r"(GPU|MIG)-", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Device:
    """One device, or some cores of the CPU."""

    name: str
    """Name on the command line: "cuda:1", "cpu:0-3"."""
    cores: tuple[int, ...] = ()
    """Cores of the CPU; empty for all of them, and for accelerators."""
    visible: str | None = None
    """`CUDA_VISIBLE_DEVICES` of its processes, which see no other device; None: as it is here."""

    @property
    def torch_name(self) -> str:
        """Name as torch spells it in its processes: "cuda:1", "cpu"."""
        if self.visible is not None:
            return "cuda:0"
        return "cpu" if self.cores else self.name

    @property
    def folder_name(self) -> str:
        """Name of the folder for its trials."""
        return self.name.replace(":", "-")

    @property
    def environ(self) -> dict[str, str]:
        """Variables by which processes keep to the device."""
        seen = {} if self.visible is None else {"CUDA_VISIBLE_DEVICES": self.visible}
        return environ_for(self.cores) | seen

    def locks(self, uuid: str = "") -> tuple[str, ...]:
        """Return the names of the locks that a trial on it needs, in the order to take them in.

        `uuid` is that of the accelerator from torch, empty if it is not known yet. Numbers of GPUs
        are those of this process under `CUDA_VISIBLE_DEVICES`.
        """
        if self.cores or self.name == "cpu":
            cores = self.cores or os.sched_getaffinity(0)
            return tuple(f"cpu-{core}" for core in sorted(cores))
        kind, _, index = self.name.partition(":")
        place = int(index) if index.isdecimal() else 0
        entries = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        entry = entries[place].strip() if kind == "cuda" and place < len(entries) else ""
        name = entry or str(place)
        # The uuid of a slice of a GPU may be the whole GPU's.
        if uuid and not entry.upper().startswith("MIG-"):
            name = f"GPU-{_CARD.sub('', uuid)}"
        # Short and plain enough for a socket, whatever the variable holds.
        return (re.sub("[^a-z0-9-]", "-", f"{kind}-{name}".lower())[:_LONGEST_LOCK],)


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
        faults.append("all need equally many cores")
    held = [lock for device in devices for lock in device.locks()]
    twice = sorted({lock for lock in held if held.count(lock) > 1})
    if twice:
        faults.append(f"{', '.join(twice)} would be used by two trials at once")
    if faults:
        raise UsageError(f"--device {text}: {'; '.join(faults)}.")
    return devices


def seen_alone(device: Device) -> Device:
    """Return the device so that its processes see no other: a script takes what it sees.

    Raises:
        UsageError: processes cannot be kept to it.
    """
    kind, _, index = device.name.partition(":")
    if kind in ("cpu", "auto"):
        return device
    place = int(index) if index.isdecimal() else 0
    text = os.environ.get("CUDA_VISIBLE_DEVICES")
    entries = [str(number) for number in range(place + 1)]
    if text is not None:
        entries = [entry for part in text.split(",") if (entry := part.strip())]
    if place >= len(entries):
        raise UsageError(f"--device: there is no {device.name}; CUDA_VISIBLE_DEVICES is {text!r}.")
    return replace(device, visible=entries[place])


def shared_cores(devices: Sequence[Device]) -> dict[Device, tuple[int, ...]]:
    """Return the cores that the trials of each device keep to.

    Several accelerators of one host share its cores evenly, in the order of their numbers: trials
    that run at the same time would else each use all of them.
    """
    cores = sorted(os.sched_getaffinity(0))
    each = len(cores) // len(devices) if devices else 0
    if len(devices) < 2 or devices[0].torch_name == "cpu" or not each:  # noqa: PLR2004
        return {device: device.cores for device in devices}
    return {device: tuple(cores[n * each : (n + 1) * each]) for n, device in enumerate(devices)}


def _device(name: str) -> Device:
    match = _CORES.fullmatch(name)
    if not match:
        if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
            raise UsageError(f"--device: {name!r} is not a device; write cuda:0 or cpu:0-3.")
        return Device(name)
    first, last = int(match[1]), int(match[2] or match[1])
    allowed = os.sched_getaffinity(0)
    cores = tuple(range(first, last + 1)) if last <= max(allowed) else ()
    if not cores or not allowed.issuperset(cores):
        raise UsageError(
            f"--device: {name} has cores that this process may not use; "
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
        """
        if not isinstance(job.task, Inspect):
            with device_locks(self._locks, self._check):
                return self._runner.run(job, folder)
        outcome = self._runner.run(job, folder)
        if isinstance(outcome, Inspected) and not self._device.cores:
            is_known = self._device.visible is not None
            device = self._device if is_known else Device(outcome.machine.device)
            names = set(device.locks(outcome.device_uuid))
            # The processes of a trial on this host; in one order, or two searches wait forever.
            for number, uuid in enumerate(outcome.rank_uuids):
                names.update(Device(f"{outcome.machine.device_type}:{number}").locks(uuid))
            self._locks = tuple(sorted(names))
        return outcome

    def _check(self) -> None:
        if self._stop.is_at_once():
            raise KeyboardInterrupt


@contextmanager
def device_locks(names: Iterable[str], check: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Lock devices while the block runs; wait while another process has one of the locks.

    The names are from `Device.locks`. `check` is called about five times a second while waiting; an
    error that it raises ends the wait.
    """
    with ExitStack() as held:
        for name in names:
            lock = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            while not _bound(lock, name):
                check()
                time.sleep(_LOCK_POLL_SECONDS)
        yield


def _bound(lock: socket.socket, name: str) -> bool:
    """Try to take a lock; return True if that worked, False if another process has it."""
    try:
        lock.bind(_LOCK_PREFIX + name)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    return True


def crowded_line(device: str, free_bytes: int | None, limit_bytes: int) -> str:
    """Return the warning that less memory is free than trials may use; "" if that is not so."""
    if free_bytes is None or free_bytes >= limit_bytes:
        return ""
    return (
        f"{device}: {size(free_bytes)} of its memory is free, and a trial may use "
        f"{size(limit_bytes)}. Configurations between the two fail here for lack of memory. Free "
        f"the rest, or give --memory-limit."
    )
