"""Knobs of attention: the kernel of torch's scaled_dot_product_attention."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.knobs.base import Knob, OneOf, Setup, Value
from autotune.knobs.compile import mark_compiled_code
from autotune.knobs.torch_private import compiled_graphs, is_profiling
from autotune.values.machine import Machine
from autotune.values.outcome import WorkloadFacts

if TYPE_CHECKING:
    from torch import nn

# Kernels, and torch's words for them.
_WORDS = {"flash": "flash", "efficient": "mem_efficient", "math": "math", "cudnn": "cudnn"}
_KERNELS = tuple(_WORDS)
# All kernels except cuDNN's, which makes a plan for each new shape.
_WITHOUT = "without_cudnn"
_HERE: Mapping[str, tuple[str, ...]] = {"cpu": ("flash", "math"), "cuda": (*_KERNELS, _WITHOUT)}
# Names of operators begin so; the one of flash attention on a CPU has a longer name.
_OPERATOR = "aten::_scaled_dot_product_"
_MATH = f"{_OPERATOR}attention_math"

# Frameworks that let their users choose call it by its short name.
_NAMES = ("scaled_dot_product_attention", "sdpa")
# The first forward pass may be the one in which the model is compiled.
_PASSES = 2
_seen: dict[Value, list[frozenset[str]]] = {}
"""By value, the operators of attention in each of the first forward passes under it."""
_before: dict[str, bool] = {}
"""Kernels that were permitted before one was chosen."""


class SdpaBackend(Knob):
    """The kernel of scaled_dot_product_attention."""

    name = "sdpa_backend"
    default = None
    values = OneOf((None, *_KERNELS, _WITHOUT))
    effect = "numerics"
    summary = (
        "Kernel of scaled_dot_product_attention; null is PyTorch's choice for each call, "
        "without_cudnn its choice among the others."
    )
    pays = (
        "Long sequences, and shapes for which PyTorch's order of preference is not the best. "
        "without_cudnn: many lengths, for each of which cuDNN makes a plan."
    )
    hurts = (
        "A kernel that does not take a call's mask, type or shape fails the training, and an "
        "evaluation in the same process, which uses it too."
    )
    call = "torch.backends.cuda.enable_flash_sdp(True), and False for the other kernels"
    source = "https://docs.pytorch.org/docs/stable/backends.html#torch-backends-cuda"

    def obstacle(self, value: Value, machine: Machine) -> str | None:
        if value is None or value in _HERE.get(machine.device_type, ()):
            return None
        return f"PyTorch has no such kernel for {machine.device_type}"

    def irrelevance(self, facts: WorkloadFacts) -> str | None:
        if facts.attention:
            return None
        return "no source of the model mentions scaled_dot_product_attention"

    def on_process(self, value: Value) -> None:
        _seen.pop(value, None)
        _permit(value)
        # The kernel is chosen as code is compiled.
        mark_compiled_code(self.name, value)

    def setters(self) -> Iterable[tuple[Any, str]]:
        from torch.backends import cuda

        return [(cuda, f"enable_{word}_sdp") for word in _WORDS.values()]

    def forward_context(self, value: Value, device: str) -> AbstractContextManager[None]:
        if value is None or len(_seen.get(value, ())) >= _PASSES or is_profiling():
            return nullcontext()
        return _watched(value)

    def read_back(self, setup: Setup) -> Value:
        permitted = _permitted()
        # Permission proves nothing: the model may not call it, or the compiler replace it.
        passes = _seen.get(permitted)
        ran = _kernels_of(passes[-1]) if passes else set()
        is_others = permitted == _WITHOUT and bool(ran) and "cudnn" not in ran
        return permitted if is_others or ran == {permitted} else None


@contextmanager
def _watched(value: Value) -> Iterator[None]:
    """Note which operators of attention run in this block."""
    from torch.autograd.profiler import profile

    with profile(use_kineto=False) as watch:
        yield
    names = {event.name for event in watch.function_events or ()}
    if names:  # nothing runs in a context that is entered to read another knob back
        found = frozenset(name for name in names if name.startswith(_OPERATOR))
        _seen.setdefault(value, []).append(found)


def _permit(value: Value) -> None:
    """Permit only one kernel, or the others; None: those that were permitted before any was chosen.

    This holds for the whole process, because recomputed activations run in the backward pass, and a
    script has its own forward pass.
    """
    from torch.backends import cuda

    if value is not None and not _before:
        _before.update(_permissions())
    for name, is_permitted in _before.items():
        switch = getattr(cuda, f"enable_{_WORDS[name]}_sdp")
        is_kept = is_permitted and not (value == _WITHOUT and name == "cudnn")
        switch(is_kept if value in (None, _WITHOUT) else name == value)
    if value is None:
        _before.clear()


def _permissions() -> dict[str, bool]:
    """Return which kernels are permitted; the switches hold for a CPU as well."""
    from torch.backends import cuda

    return {name: getattr(cuda, f"{word}_sdp_enabled")() for name, word in _WORDS.items()}


def _permitted() -> Value:
    """Return the only permitted kernel, or the value for all except cuDNN's; else None."""
    permitted = _permissions()
    names = [name for name, is_permitted in permitted.items() if is_permitted]
    if len(names) == 1:
        return names[0]
    return _WITHOUT if permitted == {**_before, "cudnn": False} else None


def _kernels_of(operators: frozenset[str]) -> set[str]:
    """Return the kernels of the operators that ran."""
    kernels = {name for name in _KERNELS for o in operators if o.startswith(_OPERATOR + name)}
    if not kernels and (_MATH in operators or compiled_graphs()):
        # The compiler takes the formula apart, so that no operator of it is left.
        return {"math"}
    return kernels


def mentions_attention(model: nn.Module, files: Iterable[Path]) -> bool:
    """Return True if one of `files`, or a source of the model's classes, mentions the function.

    Nothing is run, so that a large model costs nothing. torch's own attention counts by its class,
    because the file that it stands in defines other layers too.
    """
    from torch import nn

    if any(isinstance(module, nn.MultiheadAttention) for module in model.modules()):
        return True
    kinds = {kind for module in model.modules() for kind in type(module).__mro__}
    names = {kind.__module__ for kind in kinds if kind.__module__.partition(".")[0] != "torch"}
    sources = {getattr(sys.modules.get(name), "__file__", None) for name in names}
    return any(map(_mentions, {*files, *(Path(source) for source in sources if source)}))


def _mentions(file: Path) -> bool:
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return any(name in text for name in _NAMES)


ATTENTION_KNOBS: tuple[Knob, ...] = (SdpaBackend(),)
