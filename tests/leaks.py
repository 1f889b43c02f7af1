"""Traces that a test must not leave: processes, shared memory, temporary folders, locks.

Looking costs a millisecond where the test started no process, and a few where it did.
"""

from __future__ import annotations

import getpass
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

import psutil

MARK = "AUTOTUNE_TESTS"
_SHARED = Path("/dev/shm")
_PATIENCE_SECONDS = 2.0
# Shared memory has no owner: where two tests run at a time, it may be the other's.
_NEIGHBOURS_SECONDS = 60.0
# Python, Inductor and this suite keep one each, until the process ends that asked for it.
_KEPT = (b"multiprocessing.resource_tracker", b"compile_worker", b"fork_server.py")
_HOST = b"autotune.process.child.warm_host"
_STARTS = {"os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"}

_token = secrets.token_hex(8)
_starts = 0
_known: tuple[int, frozenset[str]] | None = None
_temporary = ""


def begin() -> None:
    """Mark all processes that are started from now on, and give them a temporary folder."""
    global _temporary  # noqa: PLW0603 (one per process)
    usual = tempfile.gettempdir()
    os.environ[MARK] = _token
    # Folders of failed tests and what Inductor compiled earlier stay where they are.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", usual)
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{usual}/torchinductor_{getpass.getuser()}")
    _temporary = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="autotune-tests-")
    tempfile.tempdir = None
    sys.addaudithook(_count_start)


def temporary() -> Path:
    """Return the folder for what is temporary in this run."""
    return Path(_temporary)


def end() -> None:
    """Remove the temporary folder."""
    shutil.rmtree(_temporary, ignore_errors=True)


@dataclass(frozen=True)
class Traces:
    """Traces at one moment, each by a name for people."""

    starts: int
    """Processes that were started so far."""
    processes: frozenset[str]
    shared_memory: frozenset[str]
    folders: frozenset[str]
    locks: frozenset[str]

    def since(self, earlier: Traces) -> set[str]:
        """Return the traces that came since then."""
        kinds = [field.name for field in fields(self) if field.name != "starts"]
        if self.starts == earlier.starts and not _has_children():
            kinds.remove("shared_memory")  # of the tests beside this one
        return set().union(*(getattr(self, kind) - getattr(earlier, kind) for kind in kinds))


def traces() -> Traces:
    """Return the traces that are there now."""
    return Traces(
        starts=_starts,
        processes=_processes(),
        shared_memory=frozenset(shared_memory()),
        folders=frozenset(path.name for path in Path(_temporary).glob("autotune-*")),
        locks=frozenset(_locks()),
    )


def shared_memory() -> set[str]:
    """Names of everything in /dev/shm."""
    return {path.name for path in _SHARED.iterdir()} if _SHARED.is_dir() else set()


def left_since(earlier: Traces, hosts_may_stay: bool = False) -> set[str]:
    """Return traces that came since then and do not go by themselves within two seconds."""

    def left() -> set[str]:
        new = traces().since(earlier)
        return {name for name in new if not (hosts_may_stay and _HOST.decode() in name)}

    return left() and _lasting(left)


def clear(left: set[str]) -> None:
    """End what was left, so that it is one test that fails for it."""
    for process in _family():
        if _named(process) in left:
            with suppress(psutil.Error):
                process.kill()
    for name in left:
        if name.startswith("autotune-"):
            shutil.rmtree(Path(_temporary, name), ignore_errors=True)


def _lasting(left: Callable[[], set[str]]) -> set[str]:
    """Return what is there at every look; neighbours' semaphores come and go all the time."""
    start = time.monotonic()
    found = left()
    while found and time.monotonic() - start < _patience(found):
        time.sleep(0.02)
        there = set(map(_identity, found))
        found = {name for name in left() if _identity(name) in there}
    return {name for name in found if not _is_someone_elses(name)}


def _identity(name: str) -> str:
    """Return the part of a name that stays; a fork soon has another command line."""
    return " ".join(name.split(" ", 3)[:3]) if name.startswith("process ") else name


def _patience(found: set[str]) -> float:
    """Seconds; what a neighbour's process left that was killed stays until its own test ends."""
    beside = "PYTEST_XDIST_WORKER" in os.environ and found <= shared_memory()
    return _NEIGHBOURS_SECONDS if beside else _PATIENCE_SECONDS


def _processes() -> frozenset[str]:
    """Names of all that this process started; looked for only where there can be new ones."""
    global _known  # noqa: PLW0603 (what was found last)
    if _known is None or _known[0] != _starts or _known[1] or _has_children():
        _known = (_starts, frozenset(map(_named, _family())))
    return _known[1]


def _count_start(event: str, _: object) -> None:
    global _starts  # noqa: PLW0603 (an audit hook has nothing else to keep it in)
    if event in _STARTS:
        _starts += 1


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _family() -> Iterator[psutil.Process]:
    """Processes that this one started, at any depth and in any session, less what is kept."""
    mark = f"{MARK}={_token}".encode()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError, psutil.Error):
                if mark in Path(entry.path, "environ").read_bytes().split(b"\0"):
                    command = Path(entry.path, "cmdline").read_bytes()
                    if not any(kept in command for kept in _KEPT):
                        yield psutil.Process(int(entry.name))


def _named(process: psutil.Process) -> str:
    """Number, start and command line: unique, and telling."""
    with suppress(psutil.Error):
        words = " ".join(process.cmdline()).strip()
        return f"process {process.pid} {process.create_time()} {words}"
    return f"process {process.pid}, gone"


def _locks() -> Iterator[str]:
    """Files and devices that this process has locked, by what the kernel says."""
    bound = [line.split() for line in _unix_sockets().splitlines() if "@autotune/" in line]
    if bound:
        own = set(map(_target, Path("/proc/self/fd").iterdir()))
        yield from (f"lock on {row[7]}" for row in bound if f"socket:[{row[6]}]" in own)
    with suppress(OSError):
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            _, kind, _, access, pid, file, *_ = line.replace("-> ", "").split()
            if pid == str(os.getpid()):
                yield f"{kind} lock to {access.lower()} {file}"


def _unix_sockets() -> str:
    try:
        return Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _target(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except OSError:
        return ""


def _is_someone_elses(name: str) -> bool:
    """Return True if a process that no test started uses shared memory of this name."""
    if not (_SHARED / name).exists() or name.startswith(("process ", "autotune-")):
        return False
    family = {process.pid for process in _family()} | {os.getpid()}
    others = (p for p in psutil.process_iter() if p.pid not in family)
    return any(_has_open(process, str(_SHARED / name)) for process in others)


def _has_open(process: psutil.Process, path: str) -> bool:
    with suppress(psutil.Error):
        return any(path == file.path for file in process.open_files()) or any(
            path == region.path for region in process.memory_maps()
        )
    return False
