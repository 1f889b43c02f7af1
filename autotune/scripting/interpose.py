"""Puts settings into force in a script that does not know of them.

Each setting goes through the hook of its knob, as in a trial of a model.py. What cannot be put into
force is noted with the reason, and the script goes on as it would without us: a hook that fails
takes itself out of the way.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, IterableDataset

from autotune.config import TrainingConfig
from autotune.knobs import ALL_KNOBS, KNOBS
from autotune.knobs.base import Knob, Value
from autotune.scripting.optimizers import fuse_optimizers
from autotune.scripting.outer import or_eager, under_autocast
from autotune.scripting.seen import Seen
from autotune.training.settings import Settings

# The first steps show every module that training calls; then what changes the model comes in.
SETTLED = 2
# By then a compiled step has run, and there is nothing left to do.
_DONE = 4

_LOADER = tuple(
    knob.name
    for knob in ALL_KNOBS
    if type(knob).loader_kwargs is not Knob.loader_kwargs and knob.name != "batch_size"
)
_PROCESS = tuple(k.name for k in ALL_KNOBS if type(k).on_process is not Knob.on_process)
_MODEL = ("channels_last", "compile_mode", "amp_dtype")


@dataclass
class Interposition:
    """Stands between one script and torch."""

    config: TrainingConfig
    asked: frozenset[str]
    """Knobs to put into force."""
    is_trial: bool = False
    """Whether the script is timed: then its model is looked at though nothing is to be done to it,
    and workers that cannot be started are a result."""
    seen: Seen = field(default_factory=Seen)
    failed: dict[str, str] = field(default_factory=dict)
    """Knobs that could not be put into force, and why."""
    steps: int = 0
    """Of the first optimizer so far."""
    _models: list[weakref.ref[nn.Module]] = field(default_factory=list)
    _inside: weakref.WeakSet[nn.Module] = field(default_factory=weakref.WeakSet)
    _forward_hooks: list[Any] = field(default_factory=list)
    _leaves_loaders: bool = False

    def install(self) -> None:
        """Take the places where settings come into force; torch has just been imported."""
        with self._guarded(*_PROCESS):
            Settings(self.config).apply_to_process()
        with self._guarded(*_LOADER):
            self._watch_loaders()
        with self._guarded("fused_optimizer"):
            if "fused_optimizer" in self.asked and self.config["fused_optimizer"]:
                fuse_optimizers(self._settings.optimizer_kwargs(), self._fail)
        with self._guarded(*_MODEL):
            register_optimizer_step_post_hook(self._after_step)
            if self.is_trial or self.asked.intersection(_MODEL):
                hook = nn.modules.module.register_module_forward_pre_hook(self._before_forward)
                self._forward_hooks.append(hook)

    @property
    def _settings(self) -> Settings:
        return Settings(self.config)

    def _fail(self, name: str, error: BaseException) -> None:
        self.failed.setdefault(name, f"{type(error).__name__}: {_first_line(error)}")

    @contextmanager
    def _guarded(self, *names: str) -> Iterator[None]:
        """What goes wrong here is noted and harms nobody."""
        try:
            yield
        except Exception as error:
            for name in self.asked.intersection(names) or names[:1]:
                self._fail(name, error)

    def _watch_loaders(self) -> None:
        original = DataLoader.__iter__

        def __iter__(loader: DataLoader[Any]) -> Any:  # noqa: N807
            before = self._set_loader(loader)
            try:
                iterator = original(loader)
            except Exception as error:
                if self.is_trial or not before:
                    raise
                vars(loader).update(before)
                self._leaves_loaders = True
                for name in before:
                    self._fail(name, error)
                iterator = original(loader)
            self.note(_LOADER)  # of a loader that nobody names, the iterator alone stays
            return iterator

        DataLoader.__iter__ = __iter__  # type: ignore[method-assign]

    def _set_loader(self, loader: DataLoader[Any]) -> dict[str, Any]:
        """Give a loader of training the settings; what it had before, where that changed."""
        before: dict[str, Any] = {}
        with self._guarded(*_LOADER):
            # An evaluation iterates without gradients. Workers that persist are there already.
            persists = getattr(loader, "_iterator", None) is not None
            if torch.is_grad_enabled() and not persists and not self._leaves_loaders:
                self.seen.meet(loader)
                given = self._loader_settings(loader)
                before = {n: vars(loader)[n] for n, v in given.items() if vars(loader)[n] != v}
                # Past __setattr__, which refuses persistent_workers once a loader is made.
                vars(loader).update(given)
        return before

    def _loader_settings(self, loader: DataLoader[Any]) -> dict[str, Any]:
        """What may be set on this loader: the number of workers decides what a stream gives."""
        names = [name for name in _LOADER if name in self.asked]
        workers = self.config["num_workers"] if "num_workers" in names else loader.num_workers
        if isinstance(loader.dataset, IterableDataset) and workers != loader.num_workers:
            self.failed["num_workers"] = "the dataset is a stream, of which each worker gives all"
            names.remove("num_workers")
            workers = loader.num_workers
        if workers != self.config["num_workers"]:
            names = [name for name in names if KNOBS[name].needs != "num_workers"]
        hooks = (KNOBS[name].loader_kwargs(self.config[name]) for name in names)
        return {name: value for kwargs in hooks for name, value in kwargs.items()}

    def _before_forward(self, module: nn.Module, _: object) -> None:
        """Note a module that is called from outside of all known ones and is being trained."""
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return
        with self._guarded(*_MODEL):
            if module in self._inside or not any(p.requires_grad for p in module.parameters()):
                return
            self._inside.update(module.modules())
            if not self._models:
                self.seen.model = module
                device = self.seen.device.type
                if torch.is_autocast_enabled(device):
                    self.seen.autocast_dtype = torch.get_autocast_dtype(device)
            self._models.append(weakref.ref(module))
            if "channels_last" in self.asked:
                # Before the first step, so that the optimizer's state has the same layout.
                KNOBS["channels_last"].on_model(self.config["channels_last"], module)

    def _after_step(self, optimizer: Optimizer, *_: object) -> None:
        if self.steps == _DONE:  # a hook cannot take itself away while hooks are being called
            return
        with self._guarded(*_MODEL):
            if not self.seen.steps_with(optimizer):
                return
            self.steps += 1
            if self.steps == SETTLED:
                self._settle()
            if self.steps == _DONE:
                self.note(self.asked)

    def _settle(self) -> None:
        """Compile the models that training calls, and put autocast around them."""
        for hook in self._forward_hooks:
            hook.remove()
        models = [model for model in (reference() for reference in self._models) if model]
        if "compile_mode" in self.asked and self.config["compile_mode"]:
            with self._guarded("compile_mode"):
                for model in filter(_is_eager, models):
                    KNOBS["compile_mode"].on_model(self.config["compile_mode"], model)
                    if not self.is_trial:
                        or_eager(model, partial(self._fail, "compile_mode"))
        if "amp_dtype" in self.asked and self.config["amp_dtype"] and not self.seen.autocast_dtype:
            with self._guarded("amp_dtype"):
                for model in models:
                    under_autocast(model, self._autocast, self._saw_autocast)

    def _autocast(self, device: torch.device) -> Any:
        return self._settings.autocast(device)

    def _saw_autocast(self, dtype: torch.dtype | None) -> None:
        self.seen.autocast_dtype = dtype

    def note(self, names: Iterable[str]) -> None:
        """Remember what asked knobs read now, as far as there is anything to read."""
        for name in self.asked.intersection(names):
            with self._guarded(name), suppress(LookupError):
                self.seen.note(KNOBS[name])

    def overridden(self) -> dict[str, tuple[Value, Value]]:
        """Asked knobs that read another value than they were set to: wanted and found."""
        found: dict[str, tuple[Value, Value]] = {}
        for knob in ALL_KNOBS:
            wanted = self.config[knob.name]
            if wanted is None or knob.name in self.failed or knob.name not in self.asked:
                continue
            try:
                value = self.seen.read(knob)
            except LookupError as error:
                self.failed[knob.name] = str(error)
                continue
            if value != wanted:
                found[knob.name] = (wanted, value)
        return found


def _is_eager(model: nn.Module) -> bool:
    """Whether the script has not compiled it itself."""
    return model._compiled_call_impl is None and not hasattr(model, "_orig_mod")


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "no message")
