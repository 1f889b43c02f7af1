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
from autotune.process.common.interpreter import torch_version
from autotune.values.machine import nvidia_driver
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
    torch: str
    driver: str | None = None
    """Version of NVIDIA's driver; None without one."""
    commit: str | None = None
    """Commit of the workload, with "-dirty" if files were changed since; None without git."""

    def described(self, unit: str) -> str:
        """Return the rate in `unit` with its date and what it was measured on, on one line."""
        low, high = self.ci95
        versions = (f"torch {self.torch}", self.driver and f"driver {self.driver}")
        code = self.commit and f"commit {self.commit}"
        where = ", ".join(filter(None, (*versions, code, self.settings)))
        return (
            f"{self.date[:10]}  {self.samples_per_second:g} {unit} ({low:g} to {high:g}), {where}"
        )


def append(
    folder: Path,
    command: Literal["search", "compare"],
    workload: Path,
    settings: str,
    runs: Sequence[Measurement],
) -> None:
    """Append the rate of these runs to the history in a study's folder.

    Raises:
        OSError: it cannot be written.
    """
    rate, (low, high) = rate_of(runs)
    line = ConfirmedRate(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command,
        workload=workload.name,
        settings=settings or "your settings",
        samples_per_second=readable(rate),
        ci95=(readable(low), readable(high)),
        torch=torch_version() or "unknown",
        driver=nvidia_driver() or None,
        commit=_commit(workload.resolve().parent),
    )
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / NAME).open("a", encoding="utf-8") as file:
        file.write(line.model_dump_json() + "\n")


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
        except ValidationError:  # cut short by a full disk
            continue
    return tuple(found)


def _commit(folder: Path) -> str | None:
    """Return the commit that is checked out in a folder; None if git knows none."""
    words = ("--no-optional-locks", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    git = shutil.which("git")
    if git is None:
        return None
    with suppress(subprocess.SubprocessError):
        told = subprocess.check_output(
            [git, *words], cwd=folder, stderr=subprocess.DEVNULL, timeout=10, text=True
        )
        return told.strip() or None
    return None
