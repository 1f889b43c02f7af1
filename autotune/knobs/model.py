"""Knobs of computing a step: layout, kernels, precision, what is kept, how weights are updated."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from autotune.knobs.base import Integers, Knob, OneOf, Setup, Value, powers_of_two
from autotune.knobs.compile import mark_compiled_code
from autotune.knobs.torch_private import checkpointed_calls, compiled_graphs, is_profiling, setters
from autotune.values.machine import Machine
from autotune.values.outcome import WorkloadFacts

if TYPE_CHECKING:
    import torch
    from torch import nn

IMAGE_DIMENSIONS = (4, 5)
"""Dimensions of batches of images and of volumes, and of the weights of their convolutions."""
_ARGUMENTS: Mapping[Value, Mapping[str, bool]] = {
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "forloop": {"foreach": False},
}
_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
_FULL = 4  # bytes
_REPEATABLE = (":4096:8", ":16:8")
# Checkpointed calls of the process when a model was prepared.
_calls_before: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()


class ChannelsLast(Knob):
    """Memory layout of images and volumes: channels last (NHWC, NDHWC)."""

    name = "channels_last"
    default = False
    values = OneOf((False, True))
    effect = "numerics"
    summary = "Store images, volumes and convolution weights channels last (NHWC, NDHWC)."
    pays = "Convolutional networks on GPUs under AMP, and on CPUs if it saves reordering."
    hurts = "Grouped convolutions, and models that change the memory format back and forth."
    call = (
        "Module.to(memory_format=torch.channels_last), also for every 4-D input; "
        "channels_last_3d for 5-D ones"
    )
    source = "https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html"

    def irrelevance(self, facts: WorkloadFacts) -> str | None:
        if facts.image_batches:
            return None
        return "no 4-D or 5-D tensors in the batches, or no such weights in the model"

    def on_model(self, value: Value, model: nn.Module) -> nn.Module:
        if value:
            # Not Module.to, which takes one format and refuses a model with weights of both kinds.
            for tensor in (*model.parameters(), *model.buffers()):
                if tensor.dim() in IMAGE_DIMENSIONS:
                    tensor.data = tensor.data.to(memory_format=_last(tensor.dim()))
        return model

    def transfer_kwargs(self, value: Value, dimensions: int) -> Mapping[str, Any]:
        if value and dimensions in IMAGE_DIMENSIONS:
            return {"memory_format": _last(dimensions)}
        return {}

    def read_back(self, setup: Setup) -> Value:
        weights = [p for p in setup.model.parameters() if p.dim() in IMAGE_DIMENSIONS]
        if not weights or not all(w.is_contiguous(memory_format=_last(w.dim())) for w in weights):
            return False
        # A 1x1 kernel or a single channel fits both layouts and decides nothing.
        if any(not weight.is_contiguous() for weight in weights):
            return True
        import torch

        dimensions = weights[0].dim()
        moved = setup.transfer(torch.empty((2,) * dimensions))
        return bool(moved.is_contiguous(memory_format=_last(dimensions)))


def _last(dimensions: int) -> torch.memory_format:
    import torch

    return torch.channels_last if dimensions == IMAGE_DIMENSIONS[0] else torch.channels_last_3d


class CudnnBenchmark(Knob):
    """cuDNN's search for the fastest convolution algorithm."""

    name = "cudnn_benchmark"
    default = False
    values = OneOf((False, True))
    effect = "numerics"
    summary = "Let cuDNN time its algorithms for each new shape and keep the fastest."
    pays = "Convolutional networks with few distinct input shapes."
    hurts = "Changing shapes (a search each time); the search itself takes memory."
    call = "torch.backends.cudnn.benchmark = ..."
    source = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"

    def obstacle(self, value: Value, machine: Machine) -> str | None:
        if value and machine.device_type != "cuda":
            return "cuDNN runs on CUDA devices only"
        return None

    def nondeterminism(self, value: Value) -> str | None:
        return "cuDNN picks an algorithm by timing, and another run may differ" if value else None

    def on_process(self, value: Value) -> None:
        import torch

        torch.backends.cudnn.benchmark = bool(value)

    def read_process(self) -> Value:
        import torch

        return torch.backends.cudnn.benchmark

    def setters(self) -> Iterable[tuple[Any, str]]:
        return setters("_set_cudnn_benchmark")


class ActivationCheckpointing(Knob):
    """Activation checkpointing by the user's own function.

    `Settings.prepare` calls `checkpoint(model)`; this knob reads back what became of it.
    """

    name = "activation_checkpointing"
    default = False
    values = OneOf((False, True))
    # Layers that count their calls (BatchNorm's running statistics) or draw random numbers may
    # compute something else the second time, which the numerical check has to see.
    effect = "numerics"
    script_obstacle = "it needs the function checkpoint(model) of a model.py"
    summary = (
        "Call checkpoint(model) of model.py, which wraps the parts whose activations are "
        "recomputed in the backward pass."
    )
    pays = "When memory limits the batch size: the freed memory permits a larger one."
    hurts = "Wrapped parts run forward twice in each step: up to a third more time by itself."
    call = "torch.utils.checkpoint.checkpoint(block, *inputs, use_reentrant=False)"
    source = "https://docs.pytorch.org/docs/stable/checkpoint.html"

    def irrelevance(self, facts: WorkloadFacts) -> str | None:
        return None if facts.has_checkpoint else "model.py has no checkpoint(model)"

    def on_model(self, value: Value, model: nn.Module) -> nn.Module:
        _calls_before.pop(model, None)
        if value:
            _calls_before[model] = checkpointed_calls()
        return model

    def read_back(self, setup: Setup) -> Value:
        before = _calls_before.get(setup.model)
        # A call proves that something was wrapped, and that the model runs it.
        return before is not None and checkpointed_calls() > before


class AccumulationSteps(Knob):
    """Batches whose gradients are added up before the optimizer steps."""

    name = "accumulation_steps"
    default = 1
    values = Integers(1, 1024)
    effect = "statistics"
    summary = (
        "Batches in an optimizer step: each loss is divided by their number, and the gradients add "
        "up. batch_size x accumulation_steps is the effective batch."
    )
    pays = (
        "When the effective batch does not fit into memory at once: smaller batches need less, "
        "and the optimizer still steps on the same samples."
    )
    hurts = (
        "Smaller batches use the device less well. BatchNorm, means over tokens and contrastive "
        "losses give other results on parts of a batch."
    )
    call = "(loss / accumulation_steps).backward() for each batch, then optimizer.step()"
    source = "https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation"

    def suggestions(self, machine: Machine) -> tuple[Value, ...]:
        return powers_of_two(1, 8)

    def read_back(self, setup: Setup) -> Value:
        return setup.accumulation_steps


class OptimizerImpl(Knob):
    """The implementation of the update, of those that torch's optimizers have."""

    name = "optimizer_impl"
    default = None
    values = OneOf((None, "foreach", "fused", "forloop"))
    effect = "numerics"
    summary = (
        "Update all parameters in one kernel (fused), in a few for all (foreach) or in several for "
        "each (forloop); null is PyTorch's choice: foreach on CUDA, forloop on a CPU."
    )
    pays = "fused: models with many small parameters, whose update is a visible part of a step."
    hurts = "Some optimizers and parameter types lack one; foreach takes memory of the gradients."
    call = "torch.optim.AdamW(..., fused=True), or foreach=True or False"
    source = "https://docs.pytorch.org/docs/stable/optim.html"

    def irrelevance(self, facts: WorkloadFacts) -> str | None:
        if facts.optimizer_options:
            return None
        return "build_optimizer takes no options; write build_optimizer(parameters, **options)"

    def optimizer_kwargs(self, value: Value) -> Mapping[str, Any]:
        return _ARGUMENTS.get(value, {})

    def stays(self, setup: Setup) -> str:
        return ""

    def read_back(self, setup: Setup) -> Value:
        found = set[Value]()
        for group in setup.optimizer.param_groups:
            fused, foreach = group.get("fused"), group.get("foreach")
            # torch chooses only if neither argument is given.
            plain = None if fused is None and foreach is None else "forloop"
            found.add("fused" if fused else "foreach" if foreach else plain)
        return found.pop() if len(found) == 1 else None


class AmpDtype(Knob):
    """Automatic mixed precision."""

    name = "amp_dtype"
    default = None
    values = OneOf((None, "bfloat16", "float16"))
    effect = "numerics"
    summary = "Number format of the forward pass under autocast; float16 comes with a GradScaler."
    pays = "On matrix units: most convolutional and transformer models, by up to several times."
    hurts = "Without native instructions it is emulated and slow; float16 can underflow."
    call = "torch.autocast(device_type, dtype=...), torch.amp.GradScaler"
    source = "https://docs.pytorch.org/docs/stable/amp.html"

    def obstacle(self, value: Value, machine: Machine) -> str | None:
        if value is None or value in machine.native_dtypes:
            return None
        return f"{machine.device_name} has no native {value} instructions"

    def forward_context(self, value: Value, device: str) -> AbstractContextManager[None]:
        if value is None:
            return nullcontext()
        import torch

        autocast = torch.autocast(torch.device(device).type, dtype=getattr(torch, str(value)))
        return cast("AbstractContextManager[None]", autocast)

    def scales_loss(self, value: Value) -> bool:
        return value == "float16"

    def stays(self, setup: Setup) -> str:
        is_short = any(weight.dtype.itemsize < _FULL for weight in setup.model.parameters())
        return "the script's model has parameters in half precision" if is_short else ""

    def read_back(self, setup: Setup) -> Value:
        import torch

        with setup.forward_context():
            if not torch.is_autocast_enabled(setup.device.type):
                return None
            dtype = str(torch.get_autocast_dtype(setup.device.type)).removeprefix("torch.")
        return dtype if setup.scaler.is_enabled() == self.scales_loss(dtype) else None


class Float32MatmulPrecision(Knob):
    """Inner precision of float32 matrix products."""

    name = "float32_matmul_precision"
    default = "highest"
    values = OneOf(("highest", "high", "medium"))
    effect = "numerics"
    summary = "Inner precision of float32 matrix products: high is TF32, medium bfloat16."
    pays = "Float32 training on GPUs with TF32, and on CPUs with native bfloat16."
    hurts = "Costs two to three digits of each product; does nothing for what autocast covers."
    call = "torch.set_float32_matmul_precision(...)"
    source = (
        "https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html"
    )

    def obstacle(self, value: Value, machine: Machine) -> str | None:
        if value in machine.matmul_precisions:
            return None
        return f"it changes nothing on {machine.device_name}"

    def on_process(self, value: Value) -> None:
        import torch

        # Only called if needed, because it must not be mixed with torch's per-backend settings.
        if value != self.read_process():
            torch.set_float32_matmul_precision(str(value))

    def read_process(self) -> Value:
        import torch

        # Not in torch 2.6. Where it was set by itself, get_float32_matmul_precision may not know.
        per_backend = getattr(torch.backends.cuda.matmul, "fp32_precision", None)
        try:
            precision = torch.get_float32_matmul_precision()
        except RuntimeError:  # the user's file uses the per-backend settings, which override it
            return self.default
        return self.default if per_backend == "ieee" else precision

    def setters(self) -> Iterable[tuple[Any, str]]:
        return setters("_set_float32_matmul_precision", "_set_cublas_allow_tf32")


class Deterministic(Knob):
    """torch's deterministic mode: a constraint, which `--deterministic` makes part of all settings.

    It can be set in the process: cuBLAS and torch read the variable at the first use of CUDA.
    """

    name = "deterministic"
    default = False
    values = OneOf((False, True))
    effect = "numerics"
    summary = (
        "Run only kernels that give the same result each time; an operation without one raises. "
        "`--deterministic` holds it at true, and shipped spaces do not vary it."
    )
    pays = "Runs that can be repeated exactly on the same machine; it is never faster."
    hurts = "Deterministic kernels may be slower, and some operations have none."
    call = (
        "torch.use_deterministic_algorithms(True), and CUBLAS_WORKSPACE_CONFIG=:4096:8 in the "
        "environment before CUDA is used"
    )
    source = "https://docs.pytorch.org/docs/stable/notes/randomness.html"

    def nondeterminism(self, value: Value) -> str | None:
        return None if value else "the mode is off"

    def on_process(self, value: Value) -> None:
        import torch

        if value and os.environ.get(_WORKSPACE) not in _REPEATABLE:
            os.environ[_WORKSPACE] = _REPEATABLE[0]
        # Only called if needed: false leaves a mode that only warns as the user's file has it.
        if value != self.read_process():
            torch.use_deterministic_algorithms(bool(value))

    def read_process(self) -> Value:
        import torch

        only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
        return torch.are_deterministic_algorithms_enabled() and not only_warns

    def setters(self) -> Iterable[tuple[Any, str]]:
        return setters("_set_deterministic_algorithms")

    def read_back(self, setup: Setup) -> Value:
        on_cuda = setup.device.type == "cuda"
        is_lost = on_cuda and os.environ.get(_WORKSPACE) not in _REPEATABLE
        return self.read_process() and not is_lost


class FillUninitializedMemory(Knob):
    """Filling of uninitialized memory in torch's deterministic mode.

    A script may be in a mode that only warns, which `deterministic` does not count.
    """

    name = "fill_uninitialized_memory"
    default = None
    values = OneOf((None, False))
    summary = (
        "false: in deterministic mode, leave new memory such as torch.empty's as it is; null is "
        "PyTorch's choice, which fills it with NaN."
    )
    pays = "In deterministic mode: saves one write to each new tensor."
    hurts = "Code that reads what it never wrote gets other values in each run."
    call = "torch.utils.deterministic.fill_uninitialized_memory = False"
    source = "https://github.com/ultralytics/ultralytics/pull/26181"

    _is_ours = False

    def irrelevance(self, facts: WorkloadFacts) -> str | None:
        return None if facts.fills_memory else "torch's deterministic mode is off or fills nothing"

    def on_process(self, value: Value) -> None:
        if value is False or self._is_ours:
            _deterministic_flags().fill_uninitialized_memory = value is None
        self._is_ours = value is False

    def setters(self) -> Iterable[tuple[Any, str]]:
        return setters("_set_deterministic_fill_uninitialized_memory")

    def read_back(self, setup: Setup) -> Value:
        import torch

        is_on = torch.are_deterministic_algorithms_enabled()
        return False if is_on and not _deterministic_flags().fill_uninitialized_memory else None


def fills_memory() -> bool:
    """Return True if torch fills new memory, as its deterministic mode does."""
    import torch

    is_on = torch.are_deterministic_algorithms_enabled()
    return is_on and bool(_deterministic_flags().fill_uninitialized_memory)


def _deterministic_flags() -> Any:
    """Return the module that has the flag, which type checkers do not know."""
    from torch.utils import deterministic

    return deterministic


# Kernels, and torch's words for them.
_KERNEL_WORDS = {"flash": "flash", "efficient": "mem_efficient", "math": "math", "cudnn": "cudnn"}
_KERNELS = tuple(_KERNEL_WORDS)
# All kernels except cuDNN's, which makes a plan for each new shape.
_WITHOUT = "without_cudnn"
_KERNELS_HERE = {"cpu": ("flash", "math"), "cuda": (*_KERNELS, _WITHOUT)}
# Names of operators begin so; the one of flash attention on a CPU has a longer name.
_OPERATOR = "aten::_scaled_dot_product_"
_MATH_OPERATOR = f"{_OPERATOR}attention_math"

# Frameworks that let their users choose call it by its short name.
_SDPA_NAMES = ("scaled_dot_product_attention", "sdpa")
# The first forward pass may be the one in which the model is compiled.
_PASSES = 2
_operators_seen: dict[Value, list[frozenset[str]]] = {}
"""Operators of attention in each of the first forward passes, by the value in force."""
_permitted_before: dict[str, bool] = {}
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
        if value is None or value in _KERNELS_HERE.get(machine.device_type, ()):
            return None
        return f"PyTorch has no such kernel for {machine.device_type}"

    def irrelevance(self, facts: WorkloadFacts) -> str | None:
        if facts.attention:
            return None
        return "no source of the model mentions scaled_dot_product_attention"

    def on_process(self, value: Value) -> None:
        _operators_seen.pop(value, None)
        _permit(value)
        # The kernel is chosen as code is compiled.
        mark_compiled_code(self.name, value)

    def setters(self) -> Iterable[tuple[Any, str]]:
        from torch.backends import cuda

        return [(cuda, f"enable_{word}_sdp") for word in _KERNEL_WORDS.values()]

    def forward_context(self, value: Value, device: str) -> AbstractContextManager[None]:
        if value is None or len(_operators_seen.get(value, ())) >= _PASSES or is_profiling():
            return nullcontext()
        return _watched(value)

    def read_back(self, setup: Setup) -> Value:
        permitted = _permitted()
        # Permission proves nothing: the model may not call it, or the compiler replace it.
        passes = _operators_seen.get(permitted)
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
        _operators_seen.setdefault(value, []).append(found)


def _permit(value: Value) -> None:
    """Permit only one kernel, or the others; None: those that were permitted before any was chosen.

    This holds for the whole process, because recomputed activations run in the backward pass, and a
    script has its own forward pass.
    """
    from torch.backends import cuda

    if value is not None and not _permitted_before:
        _permitted_before.update(_permissions())
    for name, is_permitted in _permitted_before.items():
        switch = getattr(cuda, f"enable_{_KERNEL_WORDS[name]}_sdp")
        is_kept = is_permitted and not (value == _WITHOUT and name == "cudnn")
        switch(is_kept if value in (None, _WITHOUT) else name == value)
    if value is None:
        _permitted_before.clear()


def _permissions() -> dict[str, bool]:
    """Return which kernels are permitted; the switches hold for a CPU as well."""
    from torch.backends import cuda

    return {name: getattr(cuda, f"{word}_sdp_enabled")() for name, word in _KERNEL_WORDS.items()}


def _permitted() -> Value:
    """Return the only permitted kernel, or the value for all except cuDNN's; else None."""
    permitted = _permissions()
    names = [name for name, is_permitted in permitted.items() if is_permitted]
    if len(names) == 1:
        return names[0]
    return _WITHOUT if permitted == {**_permitted_before, "cudnn": False} else None


def _kernels_of(operators: frozenset[str]) -> set[str]:
    """Return the kernels of the operators that ran."""
    kernels = {name for name in _KERNELS for o in operators if o.startswith(_OPERATOR + name)}
    if not kernels and (_MATH_OPERATOR in operators or compiled_graphs()):
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
    return any(map(_mentions_it, {*files, *(Path(source) for source in sources if source)}))


def _mentions_it(file: Path) -> bool:
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return any(name in text for name in _SDPA_NAMES)


PRECISION_KNOBS: tuple[Knob, ...] = (
    AmpDtype(),
    Float32MatmulPrecision(),
    Deterministic(),
    FillUninitializedMemory(),
)
MODEL_KNOBS: tuple[Knob, ...] = (ChannelsLast(), CudnnBenchmark())
OPTIMIZER_KNOBS: tuple[Knob, ...] = (AccumulationSteps(), OptimizerImpl())
MEMORY_KNOBS: tuple[Knob, ...] = (ActivationCheckpointing(),)
ATTENTION_KNOBS: tuple[Knob, ...] = (SdpaBackend(),)
