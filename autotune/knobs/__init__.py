"""All knobs, in the order in which configurations, files and tables list them.

To add one, write a class in the file where it belongs and list it at that file's end. Contract
tests, documentation and the reader of search spaces use this list.
"""

from __future__ import annotations

from autotune.knobs.accumulation import ACCUMULATION_KNOBS
from autotune.knobs.attention import ATTENTION_KNOBS
from autotune.knobs.base import Knob
from autotune.knobs.compile import COMPILE_KNOBS
from autotune.knobs.device_prefetch import DEVICE_PREFETCH
from autotune.knobs.host_memory import HOST_MEMORY_KNOBS
from autotune.knobs.loader import LOADER_KNOBS
from autotune.knobs.model import MEMORY_KNOBS, MODEL_KNOBS
from autotune.knobs.optimizer import OPTIMIZER_KNOBS
from autotune.knobs.precision import PRECISION_KNOBS
from autotune.knobs.process import PROCESS_KNOBS
from autotune.knobs.workers import WORKER_KNOBS

ALL_KNOBS: tuple[Knob, ...] = (
    *LOADER_KNOBS,
    *WORKER_KNOBS,
    DEVICE_PREFETCH,
    *ACCUMULATION_KNOBS,
    *PRECISION_KNOBS,
    *COMPILE_KNOBS,
    *MODEL_KNOBS,
    *OPTIMIZER_KNOBS,
    *ATTENTION_KNOBS,
    *MEMORY_KNOBS,
    *PROCESS_KNOBS,
    *HOST_MEMORY_KNOBS,
)

KNOBS: dict[str, Knob] = {knob.name: knob for knob in ALL_KNOBS}
