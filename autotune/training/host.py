"""The warm host: imports torch once, then forks a child for each job.

`python -m autotune.training.host SOCKET LIFELINE_DESCRIPTOR`. A fork of it starts a hundred times
sooner than an interpreter that imports torch, and is as much a process of its own. It only ever
imports: it runs no operation and never sees the user's file, so there is nothing to inherit but
modules. Forking is refused where it would not be safe; the runner then starts an interpreter.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from autotune.channel import receive, send
from autotune.cores import stay_on_cores
from autotune.lifeline import hold_lifeline
from autotune.training import preload
from autotune.training.worker import work
from autotune.trial_folder import TrialFolder

# What every training imports sooner or later: torch.optim takes a second to import torch._dynamo.
_ALWAYS = ("torch._dynamo", "autotune.training.tasks")
# Stays in the parent when a fork is made, and is begun anew in the child: jemalloc, which comes
# with pyarrow, sees to that itself.
_FORK_AWARE = ("jemalloc_bg_thd",)
# Open in a process that has initialised a driver, whoever did it.
_ACCELERATORS = ("/dev/nvidia", "/dev/kfd", "/dev/dri")


def main() -> None:
    """Answer requests until the runner closes its end."""
    end = socket.socket(fileno=int(sys.argv[1]))
    hold_lifeline(int(sys.argv[2]))
    stay_on_cores()
    for name in _ALWAYS:
        importlib.import_module(name)
    while True:
        request, descriptors = receive(end)
        if request is None:
            return
        _answer(end, request, *descriptors)


def _answer(end: socket.socket, request: dict[str, Any], lifeline: int) -> None:
    """Fork a child for the request and wait for it, or say why not."""
    obstacle = _prepare(request["model_path"], request["is_script"]) or fork_obstacle()
    if obstacle:
        send(end, {"refused": obstacle})
        os.close(lifeline)
        return
    from autotune.training import memory

    held = memory.file_bytes()
    child = os.fork()
    if child == 0:
        memory.count_host(held)
        _become_child(end, request, lifeline)
    os.close(lifeline)
    _, status = os.waitpid(child, 0)
    send(end, {"exit_code": os.waitstatus_to_exitcode(status)})


def _prepare(model_path: str | None, is_script: bool) -> str | None:
    """Import what the workload will, or say why a fork could not import what it needs."""
    if model_path is None:
        return None
    if is_script and preload.sets_environment(Path(model_path)):
        return "the script may set its environment before it imports torch"
    preload.preload(Path(model_path))
    shadowed = preload.shadowed(Path(model_path))
    return f"{shadowed[0]} is the name of another module, too" if shadowed else None


def fork_obstacle() -> str | None:
    """Why a fork of this process could hang or fail, or None.

    Threads that know of forks (OpenBLAS has some) end when one is made and start again when needed.
    So a first fork, of a child that leaves at once, tells them from those that would be missed.
    """
    used = sorted(name for name in _open_files() if name.startswith(_ACCELERATORS))
    if used:
        return f"an import opened {used[0]}"
    if other_threads():
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    left = other_threads()
    return f"an import left a thread running: {', '.join(left)}" if left else None


def other_threads() -> list[str]:
    """Names of the threads beside this one that do not know of forks."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it ended meanwhile
            names.append((task / "comm").read_text(encoding="utf-8").strip())
    names.remove(Path("/proc/self/comm").read_text(encoding="utf-8").strip())
    return sorted(name for name in names if name not in _FORK_AWARE)


def _open_files() -> list[str]:
    links = list(Path("/proc/self/fd").iterdir())  # one of them is this listing's own, gone by now
    return [str(link.readlink()) for link in links if link.is_symlink()]


def _become_child(end: socket.socket, request: dict[str, Any], lifeline: int) -> NoReturn:
    """Go on as a child would that was started afresh: own session, own logs, own lifeline."""
    try:
        os.setsid()
        hold_lifeline(lifeline)
        folder = TrialFolder(Path(request["folder"]))
        for path, descriptor in ((folder.stdout, 1), (folder.stderr, 2)):
            log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o666)
            os.dup2(log, descriptor)
            os.close(log)
        send(end, {"pid": os.getpid()})
        end.close()
        _forget_random_state()
        work(folder, request["start"])
    finally:
        os._exit(1)


def _forget_random_state() -> None:
    """NumPy's global generator would give every child the same numbers; Python's renews itself."""
    numpy = sys.modules.get("numpy")
    with suppress(AttributeError):
        numpy.random.seed()  # type: ignore[union-attr]


if __name__ == "__main__":
    main()
