"""A workload whose import and dataset are done once, before the process is forked.

The warm host imports model.py and calls `build_dataset`; each trial is a fork of it, as DataLoader
workers are forks of a training process. The host computes on one thread, because a pool of threads
does not survive a fork.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import torch

from autotune.knobs.base import Value
from autotune.training.fork_obstacles import Traces
from autotune.training.inspection import process_settings
from autotune.training.training_setup import build_dataset
from autotune.training.workload import Workload, load_workload

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
    with traces.watching(), _one_thread() as threads:
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
