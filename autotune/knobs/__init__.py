"""All knobs, in the order in which configurations, files and tables list them.

To add one, write a class in the file where it belongs and list it at that file's end. Contract
tests, documentation and the reader of search spaces use this list.
"""

from __future__ import annotations

from autotune.knobs.accumulation import ACCUMULATION_KNOBS
from autotune.knobs.base import Knob
from autotune.knobs.loader import LOADER_KNOBS
from autotune.knobs.model import MODEL_KNOBS
from autotune.knobs.precision import PRECISION_KNOBS
from autotune.knobs.process import PROCESS_KNOBS

ALL_KNOBS: tuple[Knob, ...] = (
    *LOADER_KNOBS,
    *ACCUMULATION_KNOBS,
    *PRECISION_KNOBS,
    *MODEL_KNOBS,
    *PROCESS_KNOBS,
)

KNOBS: dict[str, Knob] = {knob.name: knob for knob in ALL_KNOBS}
