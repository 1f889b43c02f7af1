"""A workload whose import and dataset are done once, before the process is forked.

The warm host imports model.py and calls `build_dataset`; each trial is a fork of it, as DataLoader
workers are forks of a training process. It has one thread, because thread pools do not survive.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from autotune.knobs import process_settings
from autotune.knobs.base import Value
from autotune.knobs.process import allocator_in_use
from autotune.training.training_setup import build_dataset
from autotune.training.workload import Workload, load_workload

# Threads that forks do without: that of the jemalloc which comes with pyarrow. Where jemalloc is
# malloc itself, a user asked for its thread, which jemalloc does not start again in a fork.
_FORK_AWARE = ("jemalloc_bg_thd",)
# Device files that are open in a process that has initialised a driver; the last is WSL's.
_ACCELERATORS = ("/dev/nvidia", "/dev/kfd", "/dev/dri", "/dev/dxg")


def fork_obstacle(who: str = "an import") -> str | None:
    """Return why a fork of this process could hang or fail, or None.

    Side effect: forks a child that exits at once if there are threads. Threads of libraries that
    support forks (OpenBLAS) end then and restart when needed; others would be missing in a fork.
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
    """Traces that the user's code leaves in this process after this object was created.

    Side effect: tqdm gets a lock that is fit for forks.
    """

    def __init__(self) -> None:
        if tqdm := sys.modules.get("tqdm"):  # torch imports it; forks would share its own lock
            tqdm.tqdm.set_lock(threading.RLock())
        self._files = _open_files()
        self._shared = _shared_mappings()

    def obstacle(self, who: str) -> str | None:
        """Return why a fork would differ from a process that ran the code itself, or None."""
        for thread in threading.enumerate():
            if type(thread).__module__ == "tqdm._monitor":  # the next progress bar starts another
                with suppress(Exception):
                    thread.exit()  # type: ignore[attr-defined]
        if signal.getsignal(signal.SIGCHLD) is not signal.SIG_DFL:
            return f"{who} changed what happens when a child process ends"
        for child in psutil.Process().children():
            name = str(child.pid)
            with suppress(psutil.Error):
                name = child.name()
            return f"{who} left a child process running: {name}"
        if found := fork_obstacle(who):
            return found
        if files := self._new_files():
            return f"{who} left a file open, whose position forks would share: {files[0]}"
        if shared := sorted(_shared_mappings() - self._shared):
            return f"{who} made memory that forks would share: {shared[0].split(maxsplit=5)[-1]}"
        return None

    def _new_files(self) -> list[str]:
        """Return new open files whose position matters; that of a mapped file does not."""
        words = (line.split(maxsplit=5) for line in _mappings())
        mapped = {parts[5] for parts in words if len(parts) > 5}  # noqa: PLR2004 (the last column)
        return sorted(
            target
            for number, target in _open_files().items()
            if self._files.get(number) != target and target not in mapped and _is_shared(number)
        )


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


def _mappings() -> list[str]:
    return Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()


Phase = AbstractContextManager[None]


@dataclass(frozen=True)
class Prepared:
    """An imported workload with its dataset, and the state of the process after building it."""

    workload: Workload
    """The workload; its `build_dataset` returns the dataset that was built already."""
    default_threads: int
    """Torch's number of threads before the file was imported."""
    threads: int
    """The number of threads that the file asked for, else the default."""
    own_settings: Mapping[str, Value]
    """Process-wide settings that the file changed while it was imported."""
    import_seconds: float
    dataset_seconds: float
    random_state: tuple[Any, Any]
    """States of Python's and NumPy's generators after the dataset was built."""

    @property
    def seconds(self) -> float:
        """Seconds that the host took once for all its forks."""
        return self.import_seconds + self.dataset_seconds

    def take_over(self) -> Workload:
        """Restore the number of threads and the random state in a fork; return the workload."""
        torch.set_num_threads(self.threads)
        of_python, of_numpy = self.random_state
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        gc.unfreeze()  # a collection takes as long as in production
        return self.workload


def prepare_for_forks(
    path: Path, phase: Callable[[str], Phase], settings: Mapping[str, Value] | None = None
) -> Prepared | str:
    """Import a model.py and build its dataset in this process, or return why forks cannot use it.

    The contexts `phase("import")` and `phase("build")` are entered around the two. The dataset is
    built with the arguments that `settings` give build_dataset.

    Raises:
        Exception: whatever the user's code raises.
    """
    traces = Traces()
    with _one_thread() as threads:
        default, before = threads[-1], process_settings()
        start = time.perf_counter()
        with phase("import"):
            workload = load_workload(path).under(settings)
        import_seconds = time.perf_counter() - start
        after, calls = process_settings(), len(threads)
        if found := traces.obstacle(f"importing {path.name}"):
            return found
        with phase("build"):
            workload, dataset_seconds = with_dataset(workload)
        changed = {name for name, value in process_settings().items() if value != after[name]}
    if len(threads) > calls:  # even to the same number: a trial may have set another one
        changed.add("num_threads")
    if changed:  # a new process would do so after the trial's settings are in force
        return f"building the dataset sets {', '.join(sorted(changed))} of the process"
    gc.collect()  # closes files without a reference
    if found := traces.obstacle("building the dataset"):
        return found
    prepared = Prepared(
        workload=workload,
        default_threads=default,
        threads=threads[-1],
        own_settings={name: value for name, value in after.items() if value != before[name]},
        import_seconds=import_seconds,
        dataset_seconds=dataset_seconds,
        random_state=(random.getstate(), np.random.get_state()),
    )
    gc.freeze()  # else a collection in a fork writes to each object, which copies its page
    return prepared


def with_dataset(workload: Workload) -> tuple[Workload, float]:
    """Build the dataset; return a workload that reuses it, and the seconds that it took.

    With other arguments, that workload builds another dataset.

    Raises:
        WorkloadError: it is neither map-style nor iterable.
    """
    start = time.perf_counter()
    dataset, built_with = build_dataset(workload), workload.options("dataset_options")
    build = workload.build_dataset

    @wraps(build)  # so that its signature is found
    def build_or_reuse(**options: Any) -> Any:
        return dataset if options == built_with else build(**options)

    return replace(workload, build_dataset=build_or_reuse), time.perf_counter() - start


@contextmanager
def _one_thread() -> Iterator[list[int]]:
    """Compute on one thread in this block, whatever number the user's code sets.

    Yield a list of the numbers in force as the code sees them: torch's default, then each that it
    set. The code reads back the last one. A number that torch refuses is refused here, too.
    """
    get, put = torch.get_num_threads, torch.set_num_threads
    noted = [get()]
    is_over = False

    def note(nthreads: int) -> None:
        put(nthreads)
        if not is_over:
            noted.append(get())
            put(1)

    torch.set_num_threads = note
    torch.get_num_threads = lambda: get() if is_over else noted[-1]
    put(1)
    try:
        yield noted
    finally:
        is_over = True  # the code may have kept these functions
        torch.set_num_threads, torch.get_num_threads = put, get
