"""Fork the ranks of a job: the place of torch's launcher, in a process that a warm host forked.

Each rank has the environment that torch's launcher gives, `python -m torch.distributed.run
--standalone`. They meet at a store of torch's, which this process keeps. When one fails, the others
are ended, and `ended.json` says which one it was.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from autotune.system.trial_folder import TrialFolder, write_atomically

_HERE = "127.0.0.1"
# Seconds in which a rank may end by itself once another has failed.
_GRACE_SECONDS = 1.0
_POLL_SECONDS = 0.02


def lead_ranks(folder: TrialFolder, processes: int, become: Callable[[int], NoReturn]) -> NoReturn:
    """Fork a process for each rank, in which `become` gets its rank; wait until all have ended.

    They stay in the process group of this process, whose exit code is 1 if a rank failed.
    """
    with socket.create_server((_HERE, 0), backlog=processes) as meeting_place:
        port, run = meeting_place.getsockname()[1], str(uuid.uuid4())
        ranks: dict[int, int] = {}
        for rank in range(processes):
            if (pid := os.fork()) == 0:
                meeting_place.close()
                os.environ.update(environ_of_rank(rank, processes, port, run))
                _tell_packages(rank)
                become(rank)
            ranks[pid] = rank
        # The store has a thread, so it is made after the last fork. Ranks wait for it in the queue
        # of the socket, which it takes over.
        listening = meeting_place.detach()
    store = TCPStore(
        _HERE, port, is_master=True, wait_for_workers=False, master_listen_fd=listening
    )
    failed = _first_failures(ranks)
    if failed:
        write_atomically(folder.ended, json.dumps({str(n): code for n, code in failed.items()}))
        _end(ranks)
    del store
    os._exit(int(bool(failed)))


def environ_of_rank(rank: int, processes: int, port: int, run: str) -> dict[str, str]:
    """Return the variables that torch's launcher sets for a rank of one host.

    Args:
        rank: the rank.
        processes: the number of ranks.
        port: port of the store at which they meet.
        run: identity of the run, a new one for each.
    """
    size, place = str(processes), str(rank)
    return {
        **dict.fromkeys(("RANK", "LOCAL_RANK", "ROLE_RANK"), place),
        **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"), size),
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
        "MASTER_ADDR": _HERE,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": run,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    }


def _tell_packages(rank: int) -> None:
    """Tell packages of this process their rank.

    Lightning and torchmetrics read it once, when the host imports them.
    """
    for module in tuple(sys.modules.values()):
        known: Any = getattr(module, "__dict__", {}).get("rank_zero_only")
        if hasattr(known, "rank"):
            known.rank = rank


def _first_failures(ranks: dict[int, int]) -> dict[int, int]:
    """Wait until a rank fails or all have ended; return the exit codes of those that failed.

    These are several if one has failed for another before this process was told of either. Ranks
    that have ended are taken out of `ranks` (PID to rank).
    """
    failed: dict[int, int] = {}
    while ranks and not failed:
        failed |= _ended(ranks, 0)
    for _ in tuple(ranks):
        failed |= _ended(ranks, os.WNOHANG)
    return failed


def _ended(ranks: dict[int, int], options: int) -> dict[int, int]:
    """Take the next rank that has ended out of `ranks`; return its exit code if it failed."""
    pid, status = os.waitpid(-1, options)
    rank, code = ranks.pop(pid, None), os.waitstatus_to_exitcode(status)
    return {rank: code} if rank is not None and code else {}


def _end(ranks: dict[int, int]) -> None:
    """End the ranks that are left, by force those that do not end when they are asked."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in ranks:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + _GRACE_SECONDS
        while ranks and time.monotonic() < deadline:
            _ended(ranks, os.WNOHANG)
            time.sleep(_POLL_SECONDS)
