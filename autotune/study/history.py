"""The history of a study's confirmed rates: a line of JSON for each, with what it was measured on.

Searches and comparisons append to the file in the study's folder; reports draw it.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from autotune.configuration.evidence import Pair, Part
from autotune.values.machine import Machine
from autotune.values.measurement import Measurement, rate_of
from autotune.values.text import readable

NAME = "history.jsonl"
"""Name of the file in a study's folder."""


class ConfirmedRate(Part):
    """A rate of several fresh processes, with the versions and the code that gave it."""

    date: str
    """Time in UTC, as ISO 8601."""
    command: Literal["search", "compare"]
    workload: str
    settings: str
    """Settings that differ from the user's; "your settings" if none does."""
    samples_per_second: float
    ci95: Pair
    device: str
    """Name of the accelerator, or of the CPU."""
    devices: int
    """Accelerators that trained together; 1 on a CPU."""
    processes: int
    """Processes that trained together."""
    torch: str
    driver: str | None = None
    """Version of the accelerator's driver; None without one."""
    commit: str | None = None
    """Commit of the workload, with "-dirty" if files were changed since; None without git."""

    @classmethod
    def of(
        cls,
        command: Literal["search", "compare"],
        workload: Path,
        settings: str,
        runs: Sequence[Measurement],
        machine: Machine,
        processes: int,
    ) -> ConfirmedRate:
        """Return the rate of these runs, each of so many processes on a machine, as of now."""
        rate, (low, high) = rate_of(runs)
        return cls(
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            command=command,
            workload=workload.name,
            settings=settings or "your settings",
            samples_per_second=readable(rate),
            ci95=(readable(low), readable(high)),
            device=machine.device_name,
            devices=processes if machine.has_accelerator else 1,
            processes=processes,
            torch=machine.torch,
            driver=machine.driver or None,
            commit=_commit(workload.resolve().parent),
        )

    @property
    def trained_on(self) -> str:
        """The devices and processes; rates of others cannot be compared with it."""
        devices = f"{self.devices} x {self.device}" if self.devices > 1 else self.device
        return devices if self.processes == 1 else f"{devices}, {self.processes} processes"

    def described(self, unit: str) -> str:
        """Return the rate in `unit` with its date and what it was measured on, on one line."""
        low, high = self.ci95
        versions = (f"torch {self.torch}", self.driver and f"driver {self.driver}")
        code = self.commit and f"commit {self.commit}"
        where = ", ".join(filter(None, (self.trained_on, *versions, code, self.settings)))
        return (
            f"{self.date[:10]}  {self.samples_per_second:g} {unit} ({low:g} to {high:g}), {where}"
        )


def append(folder: Path, rate: ConfirmedRate) -> None:
    """Append a rate to the history in a study's folder, on a line of its own.

    Raises:
        OSError: it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / NAME).open("a+b") as file:
        file.seek(max(0, file.tell() - 1))
        cut_short = file.read() not in (b"", b"\n")  # the last line, by a full disk
        file.write(b"\n" * cut_short + rate.model_dump_json().encode() + b"\n")


def read(folder: Path) -> tuple[ConfirmedRate, ...]:
    """Return the history in a study's folder, the oldest first, without damaged lines."""
    try:
        lines = (folder / NAME).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ()
    found = []
    for line in lines:
        try:
            found.append(ConfirmedRate.model_validate_json(line))
        except ValidationError:  # cut short
            continue
    return tuple(found)


def _commit(folder: Path) -> str | None:
    """Return the commit that is checked out in a folder; None if git knows none."""
    words = ("--no-optional-locks", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    git = shutil.which("git")
    if git is None:
        return None
    with suppress(OSError, subprocess.SubprocessError):
        told = subprocess.check_output(
            [git, *words], cwd=folder, stderr=subprocess.DEVNULL, timeout=10, text=True
        )
        return told.strip() or None
    return None
