"""Knobs of model and optimizer, which change the layout and the launch of the arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from autotune.knobs.base import Knob, OneOf, Setup, Value
from autotune.knobs.torch_private import (
    compile_modes,
    compiled_call,
    compiled_graphs,
    eager_call,
    is_compiled_wrapper,
    set_compiled_call,
)
from autotune.values.machine import Machine
from autotune.values.workload_facts import WorkloadFacts

if TYPE_CHECKING:
    from torch import nn

_IMAGE_DIMENSIONS = 4
# On CUDA these modes capture graphs, which write the results of all calls to the same memory.
_GRAPHS = ("reduce-overhead", "max-autotune")


class CompileMode(Knob):
    """torch.compile and its mode."""

    name = "compile_mode"
    default = None
    values = OneOf(
        (None, "default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
    )
    effect = "numerics"
    summary = "Mode of torch.compile; null trains in eager mode."
    pays = "Many small operations: fused kernels, on CUDA also captured graphs."
    hurts = "Compiling takes seconds to minutes, and again for every new shape."
    call = "Module.compile(mode=...)"
    source = "https://docs.pytorch.org/docs/stable/generated/torch.compile.html"

    def obstacle(self, value: Value, machine: Machine) -> str | None:
        if value is None:
            return None
        if machine.compile_obstacle:
            return machine.compile_obstacle
        if value not in machine.compile_modes:
            return f"torch {machine.torch} does not know this mode"
        if value in _GRAPHS and not machine.cuda_graphs:
            return "its gain is CUDA graphs, which this device does not have"
        return None

    def on_model(self, value: Value, model: nn.Module) -> nn.Module:
        # In place, so that the model's type and the keys of its state_dict stay the same.
        if value is None:
            return model
        if type(model).__module__.startswith("torch.nn"):
            # Before torch 2.15 compile() silently did nothing for torch's own classes.
            import torch

            call = torch.compile(_inlined(eager_call(model)), mode=str(value))
            set_compiled_call(model, call)
        else:
            model.compile(mode=str(value))
        from autotune.knobs.compiled_calls import for_training

        for_training(model, copies=value in _GRAPHS)
        return model

    def read_back(self, setup: Setup) -> Value:
        model = setup.model
        # torch.compile(model) returns a wrapper module, whose own call is not compiled.
        compiled = model if is_compiled_wrapper(model) else compiled_call(model)
        if not hasattr(compiled, "get_compiler_config"):  # eager, or wrapped by autocast alone
            return None
        # A graph proves that something was compiled.
        if not compiled_graphs():
            return None
        config = compiled.get_compiler_config() or {}  # type: ignore[union-attr]
        return _mode_with_options(config, compile_modes())


def _inlined(call: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `call` in a function of this package, because Dynamo skips torch's own functions."""

    def forward(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    return forward


def _mode_with_options(
    config: Mapping[str, Any], modes: Mapping[str, Mapping[str, Any]]
) -> str | None:
    """Return the mode with the most options among those whose options are all in `config`."""
    fitting = [
        mode
        for mode, options in modes.items()
        if all(config.get(name) == value for name, value in options.items())
    ]
    return max(fitting, key=lambda mode: len(modes[mode]), default=None)


class ChannelsLast(Knob):
    """Memory layout of images: channels last (NHWC)."""

    name = "channels_last"
    default = False
    values = OneOf((False, True))
    effect = "numerics"
    summary = "Store images and convolution weights channels last (NHWC)."
    pays = "Convolutional networks on GPUs under AMP, and on CPUs where it saves reordering."
    hurts = "Grouped convolutions, and models that change the layout back and forth."
    call = "Module.to(memory_format=torch.channels_last), also for every 4-D input"
    source = "https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html"

    def irrelevance(self, facts: WorkloadFacts) -> str | None:
        if facts.image_batches:
            return None
        return "no 4-D tensors in the batches, or no 4-D weights in the model"

    def on_model(self, value: Value, model: nn.Module) -> nn.Module:
        import torch

        return model.to(memory_format=torch.channels_last) if value else model

    def transfer_kwargs(self, value: Value, dimensions: int) -> Mapping[str, Any]:
        import torch

        if value and dimensions == _IMAGE_DIMENSIONS:
            return {"memory_format": torch.channels_last}
        return {}

    def read_back(self, setup: Setup) -> Value:
        import torch

        weights = [p for p in setup.model.parameters() if p.dim() == _IMAGE_DIMENSIONS]
        last = all(w.is_contiguous(memory_format=torch.channels_last) for w in weights)
        # A 1x1 kernel or a single channel fits both layouts and decides nothing.
        decided = any(not w.is_contiguous() for w in weights)
        return bool(weights) and last and (decided or self._batches_are_last(setup))

    def _batches_are_last(self, setup: Setup) -> bool:
        import torch

        moved = setup.transfer(torch.empty(2, 2, 2, 2))
        return bool(moved.is_contiguous(memory_format=torch.channels_last))


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

    def on_process(self, value: Value) -> None:
        import torch

        torch.backends.cudnn.benchmark = bool(value)

    def read_process(self) -> Value:
        import torch

        return torch.backends.cudnn.benchmark

    def read_back(self, setup: Setup) -> Value:
        return self.read_process()


class FusedOptimizer(Knob):
    """One kernel for the whole update."""

    name = "fused_optimizer"
    default = False
    values = OneOf((False, True))
    effect = "numerics"
    summary = (
        "Update all parameters in a fused kernel; by default PyTorch takes a few for all on CUDA "
        "(foreach), and several for each parameter on a CPU."
    )
    pays = "Models with many small parameters, where the update is a visible part of a step."
    hurts = "Rarely; a few optimizers and parameter types do not support it."
    call = "torch.optim.AdamW(..., fused=True)"
    source = "https://docs.pytorch.org/docs/stable/optim.html"

    def irrelevance(self, facts: WorkloadFacts) -> str | None:
        if facts.optimizer_options:
            return None
        return "build_optimizer takes no options; write build_optimizer(parameters, **options)"

    def optimizer_kwargs(self, value: Value) -> Mapping[str, Any]:
        return {"fused": True} if value else {}

    def read_back(self, setup: Setup) -> Value:
        return all(bool(group.get("fused")) for group in setup.optimizer.param_groups)


MODEL_KNOBS: tuple[Knob, ...] = (CompileMode(), ChannelsLast(), CudnnBenchmark(), FusedOptimizer())
