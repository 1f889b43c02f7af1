"""All knobs, in the order in which configurations, files and tables list them.

To add one, write a class in the file where it belongs and list it at that file's end. Contract
tests, documentation and the reader of search spaces use this list. Knobs of the user's own are not
listed: their names describe them.
"""

from __future__ import annotations

from functools import cache

from autotune.knobs import model
from autotune.knobs.base import Knob, OneOf, Value
from autotune.knobs.compile import COMPILE_KNOBS
from autotune.knobs.loader import LOADER_KNOBS
from autotune.knobs.own import own_knob, word_fault
from autotune.knobs.process import PROCESS_KNOBS
from autotune.knobs.ranks import RANK_KNOBS
from autotune.knobs.stepping import STEPPING_KNOBS

ALL_KNOBS: tuple[Knob, ...] = (
    *LOADER_KNOBS,
    *model.PRECISION_KNOBS,
    *COMPILE_KNOBS,
    *model.MODEL_KNOBS,
    *model.OPTIMIZER_KNOBS,
    *STEPPING_KNOBS,
    *model.ATTENTION_KNOBS,
    *model.MEMORY_KNOBS,
    *PROCESS_KNOBS,
    *RANK_KNOBS,
)

KNOBS: dict[str, Knob] = {knob.name: knob for knob in ALL_KNOBS}


def knob_named(name: str) -> Knob:
    """Return the knob of that name, one of the user's own included.

    Raises:
        KeyError: there is no such knob.
    """
    return KNOBS.get(name) or own_knob(name) or KNOBS[name]


def process_settings() -> dict[str, Value]:
    """Return the present values of the process-wide knobs."""
    values = {knob.name: knob.read_process() for knob in ALL_KNOBS}
    return {name: value for name, value in values.items() if value is not None}


def own_fault(name: str) -> str | None:
    """Return why a knob of the user's own cannot have this name, or None."""
    knob = own_knob(name)
    if knob is None:
        return f"{name!r} is no knob"
    if knob.kind == "env" and (owner := _variables().get(knob.word)):
        return f"{knob.word} is set by the setting {owner}; vary that"
    return word_fault(knob.kind, knob.word)


@cache
def _variables() -> dict[str, str]:
    """Return the environment variables that knobs of the list set, each with its knob."""
    threads = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_THREAD_LIMIT")
    found = dict.fromkeys(threads, "num_threads")
    found |= {"CUBLAS_WORKSPACE_CONFIG": "deterministic"}
    found |= dict.fromkeys(("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"), "compile_mode")
    for knob in ALL_KNOBS:
        for value in knob.values.options if isinstance(knob.values, OneOf) else ():
            found |= dict.fromkeys(knob.environ(value), knob.name)
    return found
