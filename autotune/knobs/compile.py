"""Knobs of torch.compile, and how a model or its blocks are compiled in place for training.

`compiled` applies all knobs at once, because torch takes them in one call. Trials, `Best.prepare`
and `autotune run` compile through these functions.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from autotune.knobs import torch_private
from autotune.knobs.base import Knob, OneOf, Setup, Value
from autotune.values.machine import Machine
from autotune.values.outcome import WorkloadFacts

if TYPE_CHECKING:
    from torch import Tensor, nn

_COMPILE = "https://docs.pytorch.org/docs/stable/generated/torch.compile.html"
# These modes choose kernels by timing them.
_TIMED = ("max-autotune-no-cudagraphs", "max-autotune")
# On CUDA these modes capture graphs, which write the results of all calls to the same memory.
GRAPHS = ("reduce-overhead", "max-autotune")
"""Modes that on CUDA replay a step's kernels from a graph, without launching each."""
_BLOCKS = "blocks"
_FEWEST_BLOCKS = 3
ARGUMENTS = {"compile_mode": "mode", "compile_dynamic": "dynamic"}
"""Arguments of torch.compile by the knobs that they carry."""


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
            return "the compiler picks kernels by timing, so another run may get others"
        return None

    def stays(self, setup: Setup) -> str:
        known = torch_private.compile_modes().values()
        for call in _compiled_calls(setup.model):
            options = torch_private.compile_options(call)
            if options is None or not any(options.items() <= mode.items() for mode in known):
                return "the script compiles with a backend or options of its own"
        return ""

    def read_back(self, setup: Setup) -> Value:
        # A graph proves that something was compiled.
        if not torch_private.compiled_graphs():
            return None
        known = torch_private.compile_modes()
        modes = set[Value]()
        for call in _compiled_calls(setup.model):
            config = (call.get_compiler_config() or {}).items()
            fitting = [mode for mode, options in known.items() if options.items() <= config]
            # Of those whose options are all set, the one with the most.
            modes.add(max(fitting, key=lambda mode: len(known[mode]), default=None))
        return modes.pop() if len(modes) == 1 else None


class CompileDynamic(Knob):
    """torch.compile's treatment of shapes."""

    name = "compile_dynamic"
    default = None
    values = OneOf((None, True, False))
    effect = "numerics"
    needs = "compile_mode"
    summary = (
        "Compile once for all shapes (true) or for each shape (false); null starts with the first "
        "shape and treats sizes that change as dynamic from then on."
    )
    pays = "true: batches of many lengths, which share one compilation. false: few shapes."
    hurts = "true: kernels for any size may be slower. false: each new shape is compiled."
    call = "Module.compile(dynamic=...)"
    source = _COMPILE

    def stays(self, setup: Setup) -> str:
        return ""

    def read_back(self, setup: Setup) -> Value:
        found = {torch_private.compiled_dynamic(call) for call in _compiled_calls(setup.model)}
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


class ActivationMemoryBudget(Knob):
    """The share of the activations that compiled code may keep for the backward pass.

    It is part of the key of torch's caches of compiled code.
    """

    name = "activation_memory_budget"
    default = 1.0
    values = OneOf((1.0, 0.7, 0.5, 0.3))
    effect = "numerics"
    needs = "compile_mode"
    idle = 1.0
    summary = (
        "Share of the activations that compiled code keeps for the backward pass; the rest is "
        "recomputed."
    )
    pays = "When memory limits the batch size: the freed memory permits a larger one."
    hurts = "A smaller share recomputes more; choosing what to keep takes seconds in a large graph."
    call = "torch._functorch.config.activation_memory_budget = ..., before torch.compile"
    source = "https://pytorch.org/blog/activation-checkpointing-techniques/"

    def on_process(self, value: Value) -> None:
        torch_private.set_activation_budget(float(value or 0))

    def read_back(self, setup: Setup) -> Value:
        # Nothing is kept or computed again by code that is not compiled.
        is_used = bool(torch_private.compiled_graphs())
        return torch_private.activation_budget() if is_used else self.default


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
        _compile(module, graphs, mode=mode, dynamic=settings["compile_dynamic"])
    return model


def mark_compiled_code(name: str, value: Value) -> None:
    """Keep code that is compiled under a setting from being used under another one; None: no mark.

    For settings that change the code, and are no part of the key of torch's caches.
    """
    from torch.compiler import config

    before, _, rest = config.cache_key_tag.partition(f" {name}=")
    mark = "" if value is None else f" {name}={value}"
    config.cache_key_tag = before + "".join(rest.partition(" ")[1:]) + mark


def _compiled_calls(model: nn.Module) -> list[Any]:
    """Return the compiled calls of the model or of its blocks; none if it is eager."""
    # torch.compile(model) returns a wrapper module, whose own call is not compiled.
    if torch_private.is_compiled_wrapper(model):
        return [model]
    return [torch_private.compiled_call(module) for module in compiled_modules(model)]


def _compile(module: nn.Module, graphs: GraphGradients | None, **options: Any) -> None:
    """Let calls of `module` run code compiled at the first of them while gradients are recorded.

    An evaluation has batches of other shapes, each of which would be compiled, and may keep
    results. With `graphs`, the gradients of the whole model in modes with CUDA graphs, results are
    copies that belong to the caller, because CUDA graphs write the results of all calls to the same
    memory. Copies stay in the autograd graph. Gradients that are still there at a call are copied,
    too: the next ones are added to them. `options` are keyword arguments of torch.compile.

    Side effects: sets the compiled call of `module`, which is no part of a copy, a pickle or the
    state_dict. Does nothing if the model's own `compile` set none.
    """
    import torch
    from torch import nn

    kind, eager = type(module), torch_private.eager_call(module)
    if kind.__module__.startswith("torch.nn") or kind.compile is not nn.Module.compile:
        # Before torch 2.15 compile() silently did nothing for torch's own classes. A class with a
        # compile() of its own may compile something else than training calls. In a function of this
        # package, because Dynamo skips torch's own.
        own = torch.compile(lambda *args, **kwargs: eager(*args, **kwargs), **options)  # noqa: PLW0108
        torch_private.set_compiled_call(module, own)
    else:
        module.compile(**options)
    if (compiled := torch_private.compiled_call(module)) is None:
        return
    parameters = list(module.parameters())

    @functools.wraps(compiled)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():  # inference mode included
            return eager(*args, **kwargs)
        if graphs is None:
            return compiled(*args, **kwargs)
        graphs.copy_out(parameters)
        return _copied(compiled(*args, **kwargs))

    torch_private.set_compiled_call(module, call)


def repeated_blocks(model: nn.Module) -> list[nn.Module]:
    """Return the modules that a model repeats, in the order of `model.modules()`.

    A block has modules of its own, and an nn.ModuleList or nn.Sequential holds at least three of
    its class. Blocks inside of blocks are left out.
    """
    from torch import nn

    found: dict[nn.Module, None] = {}
    inside: set[nn.Module] = set()
    for module in model.modules():
        if module in inside or not isinstance(module, nn.ModuleList | nn.Sequential):
            continue
        alike: dict[type, list[nn.Module]] = defaultdict(list)
        for child in dict.fromkeys(module.children()):
            if any(True for _ in child.children()):
                alike[type(child)].append(child)
        for block in (
            b for blocks in alike.values() if len(blocks) >= _FEWEST_BLOCKS for b in blocks
        ):
            found[block] = None
            inside.update(block.modules())
    return [module for module in model.modules() if module in found]


def compiled_modules(model: nn.Module) -> list[nn.Module]:
    """Return the model if its calls are compiled, else those of its repeated blocks that are."""
    return [
        module
        for module in ([model] if _is_compiled(model) else repeated_blocks(model))
        if _is_compiled(module)
    ]


def is_compiled(module: nn.Module) -> bool:
    """Return True if calls of this very module are compiled, in place or by a wrapper."""
    return torch_private.is_compiled_wrapper(module) or _is_compiled(module)


def _is_compiled(module: nn.Module) -> bool:
    # A call that is wrapped by autocast alone has no compiler.
    return hasattr(torch_private.compiled_call(module), "get_compiler_config")


class GraphGradients:
    """Gradients of a model under CUDA graphs, which write them to the same memory in each run.

    Autograd adds the next gradients to those that are still there. The graph refuses to have that
    memory read once it runs again, so they are copied before.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._known: dict[int, weakref.ref[Tensor]] | None = None

    def copy_out(self, parameters: Iterable[nn.Parameter]) -> None:
        """Copy the gradients that came since the last call, if one of `parameters` has any.

        Gradients from before the first call stay, and so do views, whose memory is the user's or
        DistributedDataParallel's.
        """
        if self._known is not None and all(map(self._is_known, parameters)):
            return
        known = {}
        for parameter in self._model.parameters():
            gradient = parameter.grad
            if gradient is None:
                continue
            is_left = (
                self._known is None or self._is_known(parameter) or torch_private.is_view(gradient)
            )
            if not is_left:
                parameter.grad = gradient = gradient.clone()
            known[id(parameter)] = weakref.ref(gradient)
        self._known = known

    def _is_known(self, parameter: nn.Parameter) -> bool:
        gradient, known = parameter.grad, (self._known or {}).get(id(parameter))
        return gradient is None or (known is not None and known() is gradient)


def _copied(result: Any) -> Any:
    """Return the result with every tensor copied, or itself if its type cannot be rebuilt."""
    import torch

    try:
        return with_tensors(result, torch.clone)
    except Exception:  # a type of the model's own
        return result


def with_tensors(result: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return a model's result with `change` applied to every tensor in it, however nested.

    Raises:
        Exception: any error of the model's own types, if they cannot be rebuilt.
    """
    from torch import Tensor

    same: Any
    match result:
        case Tensor():
            return change(result)
        case dict():
            same = copy.copy(result)  # a library's subclass of dict may refuse update()
            for key, value in result.items():
                same[key] = with_tensors(value, change)
            return same
        case tuple() if hasattr(result, "n_sequence_fields"):  # such as the result of torch.max
            return type(result)(with_tensors(part, change) for part in result)
        case tuple():
            # Not by the constructor, which may take the parts one by one.
            same = tuple.__new__(type(result), (with_tensors(part, change) for part in result))
            if hasattr(result, "__dict__"):
                vars(same).update(vars(result))
            return same
        case list():
            same = copy.copy(result)
            same[:] = (with_tensors(part, change) for part in result)
            return same
        case _ if dataclasses.is_dataclass(result) and not isinstance(result, type):
            same = copy.copy(result)
            for field in dataclasses.fields(result):
                value = with_tensors(getattr(result, field.name), change)
                object.__setattr__(same, field.name, value)  # the class may be frozen
            return same
        case _:
            return result


COMPILE_KNOBS: tuple[Knob, ...] = (
    CompileMode(),
    CompileDynamic(),
    CompileScope(),
    ActivationMemoryBudget(),
)
