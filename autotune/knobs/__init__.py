"""All knobs, in the order in which configurations, files and tables list them.

To add one, write a class in the file where it belongs and list it here. Contract tests,
documentation and the reader of search spaces use this list.
"""

from __future__ import annotations

from autotune.knobs.base import Knob
from autotune.knobs.loader import (
    BatchSize,
    NumWorkers,
    PersistentWorkers,
    PinMemory,
    PrefetchFactor,
)
from autotune.knobs.model import ChannelsLast, CompileMode, CudnnBenchmark, FusedOptimizer
from autotune.knobs.precision import AmpDtype, Float32MatmulPrecision
from autotune.knobs.process import NumThreads, OmpWaitPolicy

# num_workers comes before the knobs that need it.
ALL_KNOBS: tuple[Knob, ...] = (
    BatchSize(),
    NumWorkers(),
    PrefetchFactor(),
    PersistentWorkers(),
    PinMemory(),
    AmpDtype(),
    Float32MatmulPrecision(),
    CompileMode(),
    ChannelsLast(),
    CudnnBenchmark(),
    FusedOptimizer(),
    NumThreads(),
    OmpWaitPolicy(),
)

KNOBS: dict[str, Knob] = {knob.name: knob for knob in ALL_KNOBS}
