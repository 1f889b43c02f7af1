"""Count the floating-point operations of training steps, and tell the number format they use.

PyTorch's `FlopCounterMode` counts matrix products, convolutions and attention by their shapes.
Operators without a formula count nothing. Those that may compute much are looked for, so that no
count is given that misses them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from autotune.knobs.torch_private import watching_operators

# Namespaces of operators that are PyTorch's own; any other operator may compute anything.
_OWN = {"aten", "prim", "prims", "profiler"}
# Words in names of operators that compute products or decompositions of matrices, in any form.
_HEAVY = {
    *("mm", "mv", "dot", "vdot", "matmul", "linear", "trilinear", "attention", "cdist", "fft"),
    *("rnn", "lstm", "gru", "cholesky", "triangular", "lu", "qr", "svd", "eig", "solve"),
}
_HEAVY_ENDS = ("mm", "mv")
# Least compute capability of a GPU with TF32.
_TF32_CAPABILITY = (8, 0)
_BITS_OF_TF32 = 19


@dataclass(frozen=True, slots=True)
class Counted:
    """FLOPs of training steps; a multiplication and an addition are two."""

    flops: int
    number_format: str
    """Format of the products: a dtype of torch, "tf32", or "float32 (bf16)" where a CPU multiplies
    float32 as bfloat16. If steps mix formats, the narrowest, which is the fastest."""


def count_flops(steps: Sequence[Callable[[], object]], device: torch.device) -> Counted | str:
    """Take training steps in eager mode and count their FLOPs; return the reason if that fails."""
    seen = _Seen(device)
    counter = FlopCounterMode(display=False)
    try:
        eager = torch.compiler.set_stance("force_eager")
        with eager, watching_operators(seen.look), counter:
            for step in steps:
                step()
    except Exception as error:  # the user's code under a mode that it does not expect
        return f"a step cannot be counted: {type(error).__name__}: {error}"
    counts = counter.get_flop_counts().get("Global", {})
    missed = sorted(seen.heavy - {str(operator) for operator in counts})
    if missed:
        return f"no formula for {', '.join(missed)}"
    if not counts or not seen.formats:
        return "nothing that is counted"
    return Counted(sum(counts.values()), min(seen.formats)[1])


@dataclass
class _Seen:
    """The operators of a step that may compute much, and the number formats of their tensors."""

    device: torch.device
    heavy: set[str] = field(default_factory=set)
    """Names without their overload, such as aten.mm."""
    formats: set[tuple[int, str]] = field(default_factory=set)
    """Bits and name of each format."""

    def look(self, name: str, arguments: Sequence[Any]) -> None:
        """Note an operator, named as namespace.name.overload."""
        if not is_heavy(name):
            return
        self.heavy.add(name.rpartition(".")[0] or name)
        for argument in arguments:
            if isinstance(argument, Tensor) and argument.is_floating_point():
                convolves = _is_convolution(_words(name))
                self.formats.add(_format(argument.dtype, convolves, self.device))


def is_heavy(name: str) -> bool:
    """Return whether an operator may compute much more than one operation an element.

    Some that do not are among them; a step that uses one and has no formula for it is not counted.

    Args:
        name: namespace.name.overload, as in aten.mkldnn_rnn_layer.default.
    """
    words = _words(name)
    if name.partition(".")[0] not in _OWN or _is_convolution(words):
        return True
    if "linalg" in words:
        return "norm" not in words
    return any(word in _HEAVY or word.endswith(_HEAVY_ENDS) for word in words)


def _words(name: str) -> list[str]:
    return name.partition(".")[2].partition(".")[0].split("_")


def _is_convolution(words: Sequence[str]) -> bool:
    return any(word.startswith("conv") for word in words)


def _format(dtype: torch.dtype, convolves: bool, device: torch.device) -> tuple[int, str]:
    """Return bits and name of the format in which tensors of a dtype are multiplied."""
    name, bits = str(dtype).removeprefix("torch."), 8 * dtype.itemsize
    if dtype != torch.float32:
        return bits, name
    inner = _inner_precision(convolves, device)
    if inner == "bf16":
        return 16, f"{name} (bf16)"
    return (_BITS_OF_TF32, inner) if inner == "tf32" else (bits, name)


def _inner_precision(convolves: bool, device: torch.device) -> str:
    """Return the precision in which a device multiplies float32: ieee, tf32, bf16 or none."""
    backends: Any = torch.backends
    if device.type == "cpu":
        backend = backends.mkldnn.conv if convolves else backends.mkldnn.matmul
        return str(backend.fp32_precision)
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < _TF32_CAPABILITY:
        return "ieee"
    # By default convolutions use TF32 on a GPU that has it, other products do not.
    return str((backends.cudnn.conv if convolves else backends.cuda.matmul).fp32_precision)
