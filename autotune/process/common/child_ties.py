"""Ties between a parent and its child: lifeline, cores, messages to a warm host, place of a rank.

The place is that which a launcher gave this process, as the launcher's variables say it. Each
launcher has its own variables. Torch's come first, because one launcher may start another, such as
srun a torchrun on each host.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_CORES = "AUTOTUNE_CORES"
_MOST_BYTES = 1 << 17


def lifeline() -> str:
    """Return where any process of this user opens the lifeline of this process: host, path.

    A lifeline is a pipe to which nothing is ever written. When its process ends, even by `kill -9`,
    the kernel closes the writing end. It then sends SIGKILL to the process groups that hold the
    lifeline, with their DataLoader workers, as they asked it to. No thread waits for that, because
    a second thread would make forking a worker unsafe. A launcher passes no open files on to the
    processes that it starts, so that they open it by its path.
    """
    process = os.getpid()
    return f"{this_host()}:/proc/{process}/fd/{_pipe_of(process)}"


@cache
def _pipe_of(_process: int) -> int:
    """Return the reading end of a pipe whose ends stay open until the process ends."""
    return os.pipe()[0]


def hold_lifeline(place: str, number: signal.Signals = signal.SIGKILL) -> None:
    """Tie this process group's life to the lifeline at `place`; ends it if that is gone.

    The kernel sends it the signal of that number when the other process has ended. A program that
    this process becomes holds the lifeline, too. On another host, where there is none, it ends.
    """
    host, _, path = place.partition(":")
    if host != this_host():
        sys.exit(f"{TELLS}it starts a process on {socket.gethostname()}; all must be on one host")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        os.killpg(os.getpgrp(), number)
        return
    os.set_inheritable(descriptor, True)
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(descriptor, fcntl.F_SETSIG, number)
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_ASYNC)
    with suppress(BlockingIOError):
        # Nothing is ever written. A read that returns has met the end of the pipe: the other
        # process died before the signal was requested.
        os.read(descriptor, 1)
        os.killpg(os.getpgrp(), number)


def environ_for(cores: Iterable[int]) -> dict[str, str]:
    """Return the environment variable that pins a child to `cores`; empty for no cores."""
    text = ",".join(map(str, cores))
    return {_CORES: text} if text else {}


def stay_on_cores() -> None:
    """Pin this process, and the processes that it will start, to the cores of the environment.

    Call it before torch is imported: torch and OpenMP look at the cores only as they start.
    """
    cores = os.environ.get(_CORES)
    if cores:
        os.sched_setaffinity(0, map(int, cores.split(",")))


def send(end: socket.socket, message: dict[str, Any]) -> None:
    """Send an object.

    Raises:
        OSError: the other side is gone.
    """
    end.send(json.dumps(message).encode())


def receive(end: socket.socket) -> dict[str, Any] | None:
    """Wait for an object; None if the other side is gone.

    Raises:
        TimeoutError: nothing came within the socket's own timeout.
    """
    try:
        text = end.recv(_MOST_BYTES)
    except ConnectionError:
        return None
    return json.loads(text) if text else None


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
    def torch_variables(self) -> dict[str, str]:
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
