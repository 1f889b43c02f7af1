"""The place that a launcher gave this process: its rank, as the launcher's variables say it.

Each launcher has its own variables. Torch's come first, because one launcher may start another,
such as srun a torchrun on each host.
"""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

# Variables for rank, number of processes, and rank on this host, by launcher.
_WORDS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),  # torchrun, accelerate launch
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),  # Open MPI
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),  # MPICH and Intel MPI
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)
# A script that sbatch runs has Slurm's variables, too, but is not a process of a step.
_SLURM_STEP = "SLURM_STEP_ID"
KNOWN = ", ".join(words[0] for words in _WORDS)
"""Variables by which a rank is known, for people."""

TELLS = "autotune: "
"""Beginning of a line in which a process reports why it cannot begin."""


@dataclass(frozen=True, slots=True)
class Place:
    """Place of a process among those that a launcher started."""

    rank: int
    size: int
    """Number of processes."""
    local_rank: int
    """Rank among those of this host."""

    @property
    def in_torch_s_words(self) -> dict[str, str]:
        """Return the variables by which torch finds the place."""
        values = (self.rank, self.size, self.local_rank)
        return dict(zip(_WORDS[0], map(str, values), strict=True))


def this_place() -> Place | None:
    """Return the place that a launcher has given this process; None if no launcher is known."""
    for rank, size, local in _WORDS:
        if rank.startswith("SLURM") and not os.environ.get(_SLURM_STEP, "").isdecimal():
            continue
        told = os.environ.get(rank, ""), os.environ.get(size, ""), os.environ.get(local) or "0"
        if all(map(str.isdecimal, told)):
            return Place(*map(int, told))
    return None


@cache
def this_host() -> str:
    """Return what identifies this host: processes with the same see each other's numbers.

    Containers of one machine are different hosts.
    """
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"  # noqa: PTH116 - a magic link
    return socket.gethostname()


class Started(NamedTuple):
    """A process that a launcher has started, as it notes itself in the trial's folder."""

    size: int
    pid: int


def note_of(place: Place) -> str:
    """Return the note of this process on itself."""
    return json.dumps(Started(place.size, os.getpid())) + "\n"


def started_from(note: Path) -> Started | None:
    """Read such a note back; None if there is none."""
    try:
        return Started(*json.loads(note.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
