"""Wrappers of what a script calls: models, DistributedDataParallel, optimizers' classes.

A script gets a model's results in float32, as without autocast. An optimizer gets arguments such as
`fused=True`. Settings of the model are put on the module that DDP wraps. Torch compiles it while
DDP calls it, and cuts the graph at the buckets of gradients, whichever the script compiles.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any

import torch
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import torch_private
from autotune.knobs.base import Knob, Value
from autotune.knobs.compile import mark_compiled_code, with_tensors
from autotune.knobs.ranks import COMM_DTYPE, DDP_ARGUMENTS, RANK_KNOBS
from autotune.process.common.imports import replace
from autotune.scripting.observed_training import ModelCalls, ObservedTraining
from autotune.training.apply_settings import Settings

Fail = Callable[[str, BaseException], None]
"""Function that notes that a knob, by its name, could not be applied, with the error."""

# Arguments of torch's optimizers that choose their kernel; both None is torch's choice.
_KERNELS = frozenset({"fused", "foreach"})
_SHORT = (torch.float16, torch.bfloat16)
NO_DDP = "the script wraps no model in DistributedDataParallel"
PASSES_IT = "the script passes it to DistributedDataParallel itself"


def under_autocast(
    model: nn.Module,
    autocast: Callable[[torch.device], AbstractContextManager[None]],
    saw: Callable[[torch.dtype | None], None],
    failed: Callable[[BaseException], None],
) -> None:
    """Run every training call of `model` under autocast, and return float32 to the script.

    The wrapper stands where `Module.compile` keeps compiled code. So it is no part of a copy, a
    pickle or the state_dict. `saw` gets the dtype in which the first such call ran. If a result
    cannot be converted to float32, `failed` gets the error and the model runs without autocast.
    """
    inner = torch_private.compiled_call(model) or torch_private.eager_call(model)
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    told, works = False, True

    @functools.wraps(inner)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal told, works
        # An evaluation keeps its precision.
        if not (works and torch.is_grad_enabled()):
            return inner(*args, **kwargs)
        with autocast(device):
            if not told:
                is_on = torch.is_autocast_enabled(device.type)
                saw(torch.get_autocast_dtype(device.type) if is_on else None)
                told = True
            result = inner(*args, **kwargs)
        try:
            return in_float32(result)
        except Exception as error:  # a type of the script's own that cannot be rebuilt
            works = False
            failed(error)
            return result

    torch_private.set_compiled_call(model, call)


def watch_autocast(
    saw: Callable[[torch.dtype | None], None], is_replaced: bool, value: Value
) -> Callable[[], None]:
    """Patch torch's autocast to tell in which dtype training enters it; return what undoes that.

    Where the script switches it on, in code that it compiles as well, another format takes the
    place of its own if that is to be replaced: `value` of the knob, None for float32.
    """
    dtype = None if value is None else getattr(torch, str(value))
    if is_replaced:  # compiled code is kept by the script's own format
        mark_compiled_code("amp_dtype", value or "float32")

    def enter(original: Callable[[Any], Any], autocast: Any) -> Any:
        entered, device = original(autocast), autocast.device
        if torch.is_grad_enabled() and torch.is_autocast_enabled(device):
            if is_replaced:
                torch.set_autocast_enabled(device, dtype is not None)
                torch.set_autocast_dtype(device, dtype or torch.get_autocast_dtype(device))
            saw(dtype if is_replaced else torch.get_autocast_dtype(device))
        return entered

    return replace(torch.autocast, "__enter__", enter)


def or_eager(model: nn.Module, failed: Callable[[BaseException], None]) -> None:
    """Run `model`, which will be compiled at its first call, uncompiled if that fails."""
    eager, compiled = torch_private.eager_call(model), torch_private.compiled_call(model)
    assert compiled is not None
    torch_private.set_compiled_call(model, _or_else(compiled, lambda: eager, failed))


def _or_else(
    compiled: Callable[..., Any],
    other: Callable[[], Callable[..., Any]],
    failed: Callable[[BaseException], None],
) -> Callable[..., Any]:
    """Return a function that runs `compiled`, or what `other` returns once compiling it has failed.

    `failed` gets the error, and compilation is not tried again. An error of the code itself is
    raised again by the other function.
    """
    fails, used = torch_private.compile_error(), compiled

    @functools.wraps(compiled)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal used
        if used is compiled:
            try:
                return compiled(*args, **kwargs)
            except fails as error:
                used = other()
                failed(error)
        return used(*args, **kwargs)

    return call


def change_compilation(
    options: Mapping[str, Any], failed: Callable[[BaseException], None] | None
) -> None:
    """Patch torch.compile, which Module.compile calls, to use `options` in place of the script's.

    A mode of None compiles nothing, while all wrappers and their keys of a state_dict stay. What
    the script compiles with a backend or options of its own stays as well. With `failed`, which
    gets the error, the script's own call is repeated where another one fails.
    """
    if options.get("mode", "") is None:
        torch.compiler.set_stance("force_eager")

    def changed(original: Any, model: Any = None, **given: Any) -> Any:
        is_own = given.get("options") or given.get("backend") not in (None, "inductor")
        if model is None or is_own:  # what it returns without a model calls this with one
            return original(model, **given)
        own: Callable[[], Any] = functools.partial(original, model, **given)
        try:
            compiled = original(model, **{**given, **options})
        except Exception as error:
            if failed is None:
                raise
            failed(error)
            return own()
        if failed is None:
            return compiled
        if not isinstance(compiled, nn.Module):
            return _or_else(compiled, own, failed)
        call = _or_else(torch_private.own_call(compiled), own, failed)
        torch_private.set_own_call(compiled, call)
        return compiled

    replace(torch, "compile", changed)


def counted(model: nn.Module, calls: ModelCalls) -> None:
    """Record every call of `model`, in training or in an evaluation, without changing it."""
    inner = torch_private.own_call(model)

    @functools.wraps(inner)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled():
            calls.called((*args, *kwargs.values()))
        if torch.is_grad_enabled() or model.training:
            return inner(*args, **kwargs)
        start = time.perf_counter()
        result = inner(*args, **kwargs)
        calls.evaluated(start)
        return result

    torch_private.set_own_call(model, call)


def within(model: nn.Module, context: Callable[[], AbstractContextManager[None]]) -> None:
    """Run every training call of `model` in a context of its own, without changing it."""
    inner = torch_private.own_call(model)

    @functools.wraps(inner)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return inner(*args, **kwargs)
        with context():
            return inner(*args, **kwargs)

    torch_private.set_own_call(model, call)


def in_float32(result: Any) -> Any:
    """Return a model's nested result with every float16 or bfloat16 tensor as float32."""
    return with_tensors(result, lambda one: one.float() if one.dtype in _SHORT else one)


def keep(knob: Knob) -> None:
    """Let nothing that the script calls change a knob of the process from now on.

    DataLoaders set it in their workers and threads all the same. Side effect: patches torch.
    """
    process = os.getpid()

    def ignore(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        caller = str(sys._getframe(2).f_globals.get("__name__"))  # 1 is the patch itself
        if os.getpid() != process or caller.startswith("torch.utils.data."):
            return original(*args, **kwargs)
        return None

    for owner, name in knob.setters():
        replace(owner, name, ignore)


def change_optimizers(kwargs: Mapping[str, Any], replaces: bool, fail: Fail) -> None:
    """Patch torch's optimizers to use `kwargs`, such as `fused=True`.

    If the script chooses a kernel itself, that stays, unless `kwargs` replace it. An optimizer that
    refuses them is built as the script wrote it, and `fail` gets the error.
    """
    for kind in filter(inspect.isclass, vars(optim).values()):
        if issubclass(kind, Optimizer):
            signature = inspect.signature(kind.__init__)
            taken = _KERNELS & signature.parameters.keys()
            if kwargs.keys() <= taken and taken:
                given = {**dict.fromkeys(taken), **kwargs} if replaces else kwargs
                replace(kind, "__init__", _with_arguments(signature, given, replaces, fail))


def _with_arguments(
    signature: inspect.Signature, kwargs: Mapping[str, Any], replaces: bool, fail: Fail
) -> Callable[..., None]:
    def build(original: Callable[..., None], *args: Any, **given: Any) -> None:
        try:
            bound = signature.bind(*args, **given)
        except TypeError:
            original(*args, **given)  # raises torch's own error
            return
        theirs = {name: bound.arguments.get(name) for name in kwargs}
        mine = {n: v for n, v in kwargs.items() if replaces or theirs[n] is None}
        if not mine:  # the script, or a subclass, has decided
            original(*args, **given)
            return
        # A list, because an iterator of parameters could not be read a second time.
        bound.arguments["params"] = list(bound.arguments["params"])
        try:
            bound.arguments.update(mine)
            original(*bound.args, **bound.kwargs)
        except (RuntimeError, ValueError, TypeError) as error:
            fail("optimizer_impl", error)
            bound.arguments.update(theirs)
            original(*bound.args, **bound.kwargs)

    return build


def is_eager(model: nn.Module) -> bool:
    """Return True unless the script has compiled the model itself."""
    is_compiled = torch_private.compiled_call(model) is not None
    return not (is_compiled or torch_private.is_compiled_wrapper(model))


def within_ddp(model: nn.Module) -> nn.Module:
    """Return the module that DDP wraps; others, and a DDP that is compiled itself, as they are."""
    if isinstance(model, DistributedDataParallel) and is_eager(model):
        return model.module  # type: ignore[no-any-return]
    return model


def ddp_in(model: nn.Module) -> DistributedDataParallel | None:
    """Return the DDP that a model is or has within it; None if there is none."""
    found = (part for part in model.modules() if isinstance(part, DistributedDataParallel))
    return next(found, None)


class Wrappings:
    """The models that the script wraps in DDP, with its arguments."""

    def __init__(
        self,
        config: TrainingConfig,
        asked: Iterable[str],
        before: Callable[[nn.Module], None],
        fail: Callable[[str, BaseException], None],
        replaces: Callable[[str], bool],
    ) -> None:
        """Prepare to apply the settings.

        Args:
            config: the settings.
            asked: names of the knobs to apply.
            before: called with each module that is about to be wrapped, because DDP lays out its
                buckets for the parameters as it finds them.
            fail: notes that a knob could not be applied.
            replaces: tells of a knob whether arguments of the script's own give way to it.
        """
        self._replaced = {argument for name, argument in DDP_ARGUMENTS.items() if replaces(name)}
        left = {knob.name: knob.default for knob in RANK_KNOBS if knob.name not in asked}
        self._settings = Settings(config.replace(**left))
        self._before, self._fail = before, fail
        self._given: weakref.WeakKeyDictionary[nn.Module, set[str]] = weakref.WeakKeyDictionary()

    def watch(self, observed: ObservedTraining) -> None:
        """Apply the settings to every DDP from now on; `observed` gets the first one.

        Arguments that the script passes stay, except for those that are to be replaced. Side
        effect: patches the constructor of DDP.
        """
        signature = inspect.signature(DistributedDataParallel.__init__)

        def build(original: Any, ddp: Any, module: nn.Module, *args: Any, **kwargs: Any) -> None:
            self._before(module)
            given = set(kwargs)
            with suppress(TypeError):
                given = set(signature.bind_partial(ddp, module, *args, **kwargs).arguments)
            theirs = {n: v for n, v in kwargs.items() if n not in self._replaced}
            mine = self._settings.ddp_kwargs()
            added = {n: v for n, v in mine.items() if n not in given - self._replaced}
            try:
                original(ddp, module, *args, **theirs, **added)
            except Exception as error:
                if theirs | added == kwargs:
                    raise
                for name, argument in DDP_ARGUMENTS.items():
                    if argument in added.keys() | self._replaced:
                        self._fail(name, error)
                original(ddp, module, *args, **kwargs)
            self._given[ddp] = given
            if self._settings.config[COMM_DTYPE.name]:
                self._finish_later(ddp)
            observed.ddp = observed.ddp or ddp

        replace(DistributedDataParallel, "__init__", build)

    def passed(self, ddp: DistributedDataParallel) -> list[str]:
        """Return the knobs whose arguments the script passed itself, or whose place it took."""
        given = self._given.get(ddp, set())
        names = [name for name, argument in DDP_ARGUMENTS.items() if argument in given]
        return [*names, COMM_DTYPE.name] if torch_private.comm_hooks(ddp) else names

    def _finish_later(self, ddp: DistributedDataParallel) -> None:
        """Register hooks at the first call, since the script may register one of its own before."""

        def finish(*_: object) -> None:
            handle.remove()
            try:
                if not torch_private.comm_hooks(ddp):
                    self._settings.on_ddp(ddp)
            except Exception as error:
                self._fail(COMM_DTYPE.name, error)

        # Else it is compiled with a script's compiled DDP.
        apart: Callable[..., Any] = torch.compiler.disable
        handle = ddp.register_forward_pre_hook(apart(finish))
