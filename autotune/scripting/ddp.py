"""DistributedDataParallel in a script: its settings, and the module that it wraps.

Settings of the model are put on that module. Torch compiles it while DDP calls it, and cuts the
graph where buckets of gradients are exchanged, whichever of the two the script compiles.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import ALL_KNOBS
from autotune.knobs.base import Knob
from autotune.knobs.torch_private import comm_hooks, compiled_call, is_compiled_wrapper
from autotune.scripting.observed_training import ObservedTraining
from autotune.training.apply_settings import Settings

DDP_KNOBS = tuple(
    knob
    for knob in ALL_KNOBS
    if type(knob).ddp_kwargs is not Knob.ddp_kwargs or type(knob).on_ddp is not Knob.on_ddp
)
_HOOKED = tuple(knob for knob in DDP_KNOBS if type(knob).on_ddp is not Knob.on_ddp)
NO_DDP = "the script wraps no model in DistributedDataParallel"
PASSES_IT = "the script passes it to DistributedDataParallel itself"
# Names of the same argument; torch warns if it gets both.
_SAME = frozenset({"broadcast_buffers", "forward_sync_buffers"})
_ANY_VALUES = (False, True, 1)


def is_eager(model: nn.Module) -> bool:
    """Return True unless the script has compiled the model itself."""
    return compiled_call(model) is None and not is_compiled_wrapper(model)


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
    ) -> None:
        """Prepare to apply the settings.

        Args:
            config: the settings.
            asked: names of the knobs to apply.
            before: called with each module that is about to be wrapped, because DDP lays out its
                buckets for the parameters as it finds them.
            fail: notes that a knob could not be applied.
        """
        left = {knob.name: knob.default for knob in DDP_KNOBS if knob.name not in asked}
        self._settings = Settings(config.replace(**left))
        self._before, self._fail = before, fail
        self._given: weakref.WeakKeyDictionary[nn.Module, frozenset[str]]
        self._given = weakref.WeakKeyDictionary()

    def watch(self, observed: ObservedTraining) -> None:
        """Apply the settings to every DDP from now on; `observed` gets the first one.

        Arguments that the script passes stay. Side effect: patches the constructor of DDP.
        """
        original: Any = DistributedDataParallel.__init__
        signature = inspect.signature(original)

        @functools.wraps(original)
        def __init__(ddp: Any, module: nn.Module, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            self._before(module)
            given = set(kwargs)
            with suppress(TypeError):
                given = set(signature.bind_partial(ddp, module, *args, **kwargs).arguments)
            taken = given | (_SAME if given & _SAME else set())
            added = {n: v for n, v in self._settings.ddp_kwargs().items() if n not in taken}
            try:
                original(ddp, module, *args, **kwargs, **added)
            except Exception as error:
                if not added:
                    raise
                for knob in DDP_KNOBS:
                    if _arguments(knob) & added.keys():
                        self._fail(knob.name, error)
                original(ddp, module, *args, **kwargs)
            self._given[ddp] = frozenset(taken)
            if any(self._settings.config[knob.name] for knob in _HOOKED):
                self._finish_later(ddp)
            observed.ddp = observed.ddp or ddp

        DistributedDataParallel.__init__ = __init__  # type: ignore[method-assign, assignment]

    def passed(self, ddp: DistributedDataParallel) -> list[str]:
        """Return the knobs whose arguments the script passed itself, or whose place it took."""
        given = self._given.get(ddp, frozenset())
        names = [knob.name for knob in DDP_KNOBS if _arguments(knob) & given]
        if comm_hooks(ddp):
            names += [knob.name for knob in _HOOKED]
        return names

    def _finish_later(self, ddp: DistributedDataParallel) -> None:
        """Register hooks at the first call, since the script may register one of its own before."""

        def finish(*_: object) -> None:
            handle.remove()
            try:
                if not comm_hooks(ddp):
                    self._settings.on_ddp(ddp)
            except Exception as error:
                for knob in _HOOKED:
                    self._fail(knob.name, error)

        # Else it is compiled with a script's compiled DDP.
        apart: Callable[..., Any] = torch.compiler.disable
        handle = ddp.register_forward_pre_hook(apart(finish))


def _arguments(knob: Knob) -> set[str]:
    """Return the arguments of DDP that a knob is about."""
    names = {name for value in _ANY_VALUES for name in knob.ddp_kwargs(value)}
    return names | (_SAME if names & _SAME else set())
