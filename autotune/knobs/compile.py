"""Knobs of torch.compile: its mode, how it treats shapes, and which modules it compiles.

`compiled` applies all of them at once, because torch takes them in one call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autotune.knobs.base import Knob, OneOf, Setup, Value
from autotune.knobs.compiled_calls import (
    GraphGradients,
    compile_in_place,
    compiled_modules,
    repeated_blocks,
)
from autotune.knobs.torch_private import (
    compile_modes,
    compiled_call,
    compiled_dynamic,
    compiled_graphs,
    is_compiled_wrapper,
)
from autotune.values.machine import Machine
from autotune.values.workload_facts import WorkloadFacts

if TYPE_CHECKING:
    from torch import nn

_COMPILE = "https://docs.pytorch.org/docs/stable/generated/torch.compile.html"
# These modes choose kernels by timing them.
_TIMED = ("max-autotune-no-cudagraphs", "max-autotune")
# On CUDA these modes capture graphs, which write the results of all calls to the same memory.
GRAPHS = ("reduce-overhead", "max-autotune")
"""Modes that on CUDA replay a step's kernels from a graph, without launching each."""
_BLOCKS = "blocks"


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
    source = _COMPILE

    def obstacle(self, value: Value, machine: Machine) -> str | None:
        if value is None:
            return None
        if machine.compile_obstacle:
            return machine.compile_obstacle
        if value not in machine.compile_modes:
            return f"torch {machine.torch} does not know this mode"
        if value in GRAPHS and not machine.cuda_graphs:
            return "its gain is CUDA graphs, which this device does not have"
        return None

    def nondeterminism(self, value: Value) -> str | None:
        if value in _TIMED:
            return "the compiler picks kernels by timing, other ones in the next run"
        return None

    def read_back(self, setup: Setup) -> Value:
        # A graph proves that something was compiled.
        if not compiled_graphs():
            return None
        known = compile_modes()
        configs = [call.get_compiler_config() or {} for call in _compiled_calls(setup.model)]
        modes = {_mode_with_options(config, known) for config in configs}
        return modes.pop() if len(modes) == 1 else None


class CompileDynamic(Knob):
    """torch.compile's treatment of shapes."""

    name = "compile_dynamic"
    default = None
    values = OneOf((None, True, False))
    effect = "numerics"
    needs = "compile_mode"
    summary = (
        "Compile for any shape (true) or anew for each (false); null begins with the first shape "
        "and takes sizes that change as variable from then on."
    )
    pays = "true: batches of many lengths, which share one compilation. false: few shapes."
    hurts = "true: kernels for any size may be slower. false: each new shape is compiled."
    call = "Module.compile(dynamic=...)"
    source = _COMPILE

    def read_back(self, setup: Setup) -> Value:
        found = {compiled_dynamic(call) for call in _compiled_calls(setup.model)}
        return found.pop() if len(found) == 1 else None


class CompileScope(Knob):
    """The modules that torch.compile compiles."""

    name = "compile_scope"
    default = "whole"
    values = OneOf(("whole", _BLOCKS))
    effect = "numerics"
    needs = "compile_mode"
    idle = "whole"
    summary = (
        "Compile the whole model, or each of its repeated blocks: three or more of one class in "
        "an nn.ModuleList or nn.Sequential."
    )
    pays = "blocks: equal blocks share what is compiled, in a fraction of the seconds."
    hurts = "blocks: nothing is fused across blocks, and what surrounds them stays eager."
    call = "for block in model.blocks: block.compile(mode=...)"
    source = "https://docs.pytorch.org/tutorials/recipes/regional_compilation.html"

    def irrelevance(self, facts: WorkloadFacts) -> str | None:
        if facts.repeated_blocks:
            return None
        return "no nn.ModuleList or nn.Sequential of the model has three blocks of one class"

    def read_back(self, setup: Setup) -> Value:
        blocks, found = repeated_blocks(setup.model), compiled_modules(setup.model)
        return _BLOCKS if found and found == blocks else "whole"


def compiled(model: nn.Module, settings: Mapping[str, Value]) -> nn.Module:
    """Return `model`, compiled as `settings` (knob name to value) say.

    It is compiled in place, so that its type and the keys of its state_dict stay the same. Without
    repeated blocks, the whole model is compiled, and `compile_scope` reads back so.
    """
    mode = settings["compile_mode"]
    if mode is None:
        return model
    blocks = repeated_blocks(model) if settings["compile_scope"] == _BLOCKS else []
    graphs = GraphGradients(model) if mode in GRAPHS else None
    for module in blocks or [model]:
        compile_in_place(module, graphs, mode=mode, dynamic=settings["compile_dynamic"])
    return model


def _compiled_calls(model: nn.Module) -> list[Any]:
    """Return the compiled calls of the model or of its blocks; none if it is eager."""
    # torch.compile(model) returns a wrapper module, whose own call is not compiled.
    if is_compiled_wrapper(model):
        return [model]
    return [compiled_call(module) for module in compiled_modules(model)]


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


COMPILE_KNOBS: tuple[Knob, ...] = (CompileMode(), CompileDynamic(), CompileScope())
