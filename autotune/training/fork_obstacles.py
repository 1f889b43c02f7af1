"""Check that a process can be forked: now, and after it has run the user's code.

A fork has one thread and cannot use an accelerator that its parent opened. It shares the offsets of
open files and the pages of shared mappings. Each check returns the reason against a fork, or None.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from autotune.knobs.process import allocator_in_use

# Threads that forks do without: that of the jemalloc which comes with pyarrow. Where jemalloc is
# malloc itself, a user asked for its thread, which jemalloc does not start again in a fork.
_FORK_AWARE = ("jemalloc_bg_thd",)
# Device files that are open in a process that has initialised a driver; the last is WSL's.
_ACCELERATORS = ("/dev/nvidia", "/dev/kfd", "/dev/dri", "/dev/dxg")
# Fork hooks of these modules exist in every process, or make a fork work.
_TRUSTED_HOOKS = frozenset({*sys.stdlib_module_names, "torch", "numpy"})


def fork_obstacle(who: str = "an import") -> str | None:
    """Return why a fork of this process could hang or fail, or None.

    Side effect: forks a child that exits at once if there are threads. Threads of libraries that
    support forks (such as OpenBLAS) end then and restart when needed. Threads that are left would
    be missing in a fork.
    """
    used = sorted(name for name in _open_files().values() if name.startswith(_ACCELERATORS))
    if used:
        return f"{who} opened {used[0]}"
    if other_threads():
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    left = other_threads()
    return f"{who} left a thread running: {', '.join(left)}" if left else None


def other_threads() -> list[str]:
    """Return the names of all other threads, less those that forks do without."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it ended meanwhile
            names.append((task / "comm").read_text(encoding="utf-8").strip())
    names.remove(Path("/proc/self/comm").read_text(encoding="utf-8").strip())
    return sorted(n for n in names if n not in _FORK_AWARE or allocator_in_use() == "jemalloc")


class Traces:
    """Traces that the user's code leaves in this process after this object was created."""

    def __init__(self) -> None:
        self._files = _open_files()
        self._shared = _shared_mappings()
        self._hooks: list[str] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record which modules register a fork hook in this block; give tqdm a lock fit for forks.

        The fork hooks of the standard library, torch and NumPy do not count.
        """
        if tqdm := sys.modules.get("tqdm"):  # torch imports it; forks would share its own lock
            tqdm.tqdm.set_lock(threading.RLock())
        register = os.register_at_fork

        def noted(**hooks: Callable[[], Any]) -> None:
            module = str(sys._getframe(1).f_globals.get("__name__"))
            if module.partition(".")[0] not in _TRUSTED_HOOKS:
                self._hooks.append(module)
            register(**hooks)

        os.register_at_fork = noted  # type: ignore[assignment]
        try:
            yield
        finally:
            os.register_at_fork = register

    def obstacle(self, who: str) -> str | None:
        """Return why a fork would differ from a process that ran the code itself, or None."""
        _end_progress_monitors()
        if self._hooks:
            return f"{who} registered a fork hook in {self._hooks[0]}"
        if signal.getsignal(signal.SIGCHLD) is not signal.SIG_DFL:
            return f"{who} changed what happens when a child process ends"
        if children := psutil.Process().children():
            return f"{who} left a child process running: {_name_of(children[0])}"
        if found := fork_obstacle(who):
            return found
        if files := self._new_files():
            return f"{who} left a file open, whose position forks would share: {files[0]}"
        if shared := sorted(_shared_mappings() - self._shared):
            return f"{who} made memory that forks would share: {shared[0].split(maxsplit=5)[-1]}"
        return None

    def _new_files(self) -> list[str]:
        """Return new open files whose position matters; that of a mapped file does not."""
        mapped = _mapped_paths()
        return sorted(
            target
            for number, target in _open_files().items()
            if self._files.get(number) != target and target not in mapped and _is_shared(number)
        )


def _end_progress_monitors() -> None:
    """End tqdm's monitor threads; tqdm starts a new one with the next progress bar."""
    for thread in threading.enumerate():
        if type(thread).__module__ == "tqdm._monitor":
            with suppress(Exception):
                thread.exit()  # type: ignore[attr-defined]


def _name_of(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.Error:
        return str(process.pid)


def _open_files() -> dict[int, str]:
    """Return the target of each open file descriptor."""
    found = {}
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the listing's own descriptor is closed by now
            found[int(link.name)] = str(link.readlink())
    return found


def _is_shared(descriptor: int) -> bool:
    """Return True if processes that share the descriptor would notice each other."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:  # the listing's own descriptor
        return False
    return not (stat.S_ISCHR(mode) or stat.S_ISDIR(mode))


def _shared_mappings() -> set[str]:
    """Return the lines of writable mappings that a fork would share instead of copying."""
    return {line for line in _mappings() if line.split(maxsplit=2)[1] == "rw-s"}


def _mapped_paths() -> set[str]:
    words = (line.split(maxsplit=5) for line in _mappings())
    return {parts[5] for parts in words if len(parts) > 5}  # noqa: PLR2004 (the last column)


def _mappings() -> list[str]:
    return Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
