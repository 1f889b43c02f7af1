"""Count the floating-point operations of training steps, and time products in their number format.

PyTorch's `FlopCounterMode` counts matrix products, convolutions and attention by their shapes.
Operators without a formula count nothing. Those that may compute much are looked for, so that no
count is given that misses them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from autotune.configuration.job import CountFlops
from autotune.knobs.torch_private import watching_operators
from autotune.training.batches import endless
from autotune.training.tasks import LoadedJob
from autotune.training.training_setup import build_dataset, step_apart
from autotune.values.outcome import CountedFlops, TrialOutcome

# Steps that are counted, each on a batch of its own: samples may differ in length.
_BATCHES = 4
# Namespaces of operators that are PyTorch's own; any other operator may compute anything.
_OWN = {"aten", "c10d", "fsdp", "prim", "prims", "profiler"}
# Words in names of operators that compute products or decompositions of matrices, in any form.
_HEAVY = {
    *("mm", "mv", "dot", "vdot", "matmul", "linear", "trilinear", "attention", "cdist", "fft"),
    *("rnn", "lstm", "gru", "cholesky", "triangular", "lu", "qr", "svd", "eig", "solve"),
}
_HEAVY_ENDS = ("mm", "mv")
# Least compute capability of a GPU with TF32.
_TF32_CAPABILITY = (8, 0)
_BITS_OF_TF32 = 19
# Sizes double from the first to the last, or until a product takes so many seconds.
_FIRST_SIZE, _LAST_SIZE, _LONG_SECONDS = 256, 8192, 5e-3
_RUN_SECONDS = 0.05
# Formats in which float32 is multiplied, and PyTorch's words for their precision.
_INNER = {"float32": "ieee", "tf32": "tf32", "float32 (bf16)": "bf16"}


def count(loaded: LoadedJob, task: CountFlops) -> TrialOutcome:
    """Count the FLOPs of a sample and, unless the search knows it, time matrix products.

    Raises:
        WorkloadError: the workload built something of the wrong type, or too small a dataset.
    """
    loaded.folder.enter_phase("counting FLOPs")
    setup = loaded.setup(build_dataset(loaded.workload), loaded.job.seed)
    setup.model.train()
    batches = map(setup.transfer, itertools.islice(endless(setup.loader), _BATCHES))
    step = step_apart(setup)
    steps = [partial(step, itertools.repeat(batch)) for batch in batches]
    if (counted := count_flops(steps, setup.device)) is None:
        return CountedFlops()
    flops, number_format = counted

    def rate() -> float | None:
        torch.set_num_threads(task.machine_threads)
        return matmul_rate(setup.device, number_format)

    is_known = number_format in task.known_formats
    samples = _BATCHES * setup.batches_per_step * (setup.loader.batch_size or 1)
    return CountedFlops(
        flops_per_sample=flops / samples,
        number_format=number_format,
        # Other processes wait meanwhile.
        matmul_flops_per_second=None if is_known else setup.world.on_first(rate),
    )


def count_flops(
    steps: Sequence[Callable[[], object]], device: torch.device
) -> tuple[int, str] | None:
    """Take training steps in eager mode; return their FLOPs, and the format of their products.

    A multiplication and an addition are two. The format is a dtype of torch, "tf32", or "float32
    (bf16)" where a CPU multiplies float32 as bfloat16; of several, the narrowest and fastest.
    None if a step fails, or uses an operator that may compute much and has no formula.
    """
    seen = _Seen(device)
    counter = FlopCounterMode(display=False)
    try:
        eager = torch.compiler.set_stance("force_eager")
        with eager, watching_operators(seen.look), counter:
            for step in steps:
                step()
    except Exception:  # the user's code under a mode that it does not expect
        return None
    counts = counter.get_flop_counts().get("Global", {})
    missed = seen.heavy - {str(operator) for operator in counts}
    if missed or not counts or not seen.formats:
        return None
    return sum(counts.values()), min(seen.formats)[1]


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
    A name is namespace.name.overload, as in aten.mkldnn_rnn_layer.default.
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


def matmul_rate(device: torch.device, number_format: str) -> float | None:
    """Return the FLOP/s of the fastest matrix product; None if the format has none here.

    The best of several blocks and sizes counts, because it is what the device can reach. Memory for
    three matrices suffices; larger ones are left out if there is none. A CPU multiplies with the
    threads of the process. The format is one of `count_flops`.
    """
    inner = _INNER.get(number_format)
    dtype = torch.float32 if inner else getattr(torch, number_format)
    size, best = _FIRST_SIZE, 0.0
    with _precision(device, inner), torch.no_grad():
        while size <= _LAST_SIZE:
            try:
                seconds = _seconds(size, dtype, device)
            except RuntimeError:  # no memory, or no product of this format
                break
            best = max(best, 2 * size**3 / seconds)
            if seconds > _LONG_SECONDS:
                break
            size *= 2
    return best or None


def _seconds(size: int, dtype: torch.dtype, device: torch.device) -> float:
    """Return the seconds of a product: the least mean over a block of them."""
    from torch.utils import benchmark  # each child imports this module

    # Explicit, because the user's file may have changed the default dtype.
    plain = [torch.randn(size, size, device=device, dtype=torch.float32) for _ in range(2)]
    left, right = (matrix.to(dtype) for matrix in plain)
    given = {"mm": torch.mm, "left": left, "right": right, "out": torch.empty_like(left)}
    threads = torch.get_num_threads()
    timer = benchmark.Timer("mm(left, right, out=out)", globals=given, num_threads=threads)
    return max(1e-9, min(timer.blocked_autorange(min_run_time=_RUN_SECONDS).times))


@contextmanager
def _precision(device: torch.device, inner: str | None) -> Iterator[None]:
    """Multiply float32 in this precision within the block; None leaves it as it is."""
    if inner is None or device.type not in {"cpu", "cuda"}:
        yield
        return
    backend: Any = torch.backends.cuda if device.type == "cuda" else torch.backends.mkldnn
    backend = backend.matmul
    before = backend.fp32_precision
    backend.fp32_precision = inner
    try:
        yield
    finally:
        backend.fp32_precision = before
