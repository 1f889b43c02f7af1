"""Knobs of DataLoader workers: how their processes start, and in which order batches come."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping
from typing import Any

from autotune.knobs.base import Knob, OneOf, Setup, Value
from autotune.values.machine import Machine

_DATA_LOADER = "https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader"


class LoaderStartMethod(Knob):
    """Start of worker processes: as forks of the training process, or as new ones."""

    name = "loader_start_method"
    default = None
    values = OneOf((None, "fork", "forkserver", "spawn"))
    needs = "num_workers"
    summary = "Start method of DataLoader workers; null is Python's own choice."
    pays = (
        "forkserver or spawn, where forking a large process is slow, or its pages are copied as "
        "soon as a worker touches them; fork, where new processes import for seconds."
    )
    hurts = (
        "A spawned worker imports torch and gets a pickle of the dataset: seconds at each epoch "
        "without persistent_workers, and memory for each worker. What cannot be pickled cannot be "
        "sent. A fork must not use CUDA, nor locks that another thread holds."
    )
    call = "DataLoader(multiprocessing_context=...)"
    source = "https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods"

    def obstacle(self, value: Value, machine: Machine) -> str | None:
        usual, *others = multiprocessing.get_all_start_methods()
        if value == usual:
            return "null is that already"
        if value is not None and value not in others:
            return "this system cannot start processes that way"
        return None

    def loader_kwargs(self, value: Value) -> Mapping[str, Any]:
        # Without workers a DataLoader refuses any.
        return {} if value is None else {"multiprocessing_context": value}

    def read_back(self, setup: Setup) -> Value:
        context: Any = setup.loader.multiprocessing_context
        return None if context is None else str(context.get_start_method())


class InOrder(Knob):
    """Order in which the batches of several workers are given."""

    name = "in_order"
    default = True
    values = OneOf((True, False))
    # The same batches, but which comes first depends on timing, and differs from run to run.
    effect = "statistics"
    needs = "num_workers"
    idle = True
    summary = "Give batches in the order of the sampler; false gives each as soon as it is ready."
    pays = "Samples that take very different times to load: no batch waits for a slower one."
    hurts = (
        "Runs cannot be repeated exactly. Where the time of a sample depends on its kind, quick "
        "kinds come first in each epoch."
    )
    call = "DataLoader(in_order=...)"
    source = _DATA_LOADER

    def loader_kwargs(self, value: Value) -> Mapping[str, Any]:
        return {} if value else {"in_order": False}

    def read_back(self, setup: Setup) -> Value:
        return setup.loader.in_order


WORKER_KNOBS: tuple[Knob, ...] = (LoaderStartMethod(), InOrder())
