"""Apply settings in a script that does not know of them.

Each setting goes through the hook of its knob, as in a trial of a model.py. If a setting cannot be
applied, the reason is recorded and the script continues without it.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from autotune.configuration.script import is_harmless
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import ALL_KNOBS, KNOBS, knob_named
from autotune.knobs.base import Knob, Value
from autotune.knobs.compile import ARGUMENTS, compiled, compiled_modules
from autotune.knobs.model import mentions_attention
from autotune.knobs.ranks import RANK_KNOBS
from autotune.knobs.torch_private import compiled_call, set_compiled_call
from autotune.process.common.imports import replace
from autotune.scripting import wrappers
from autotune.scripting.loaders import LOADER_KNOBS, TrainingLoaders
from autotune.scripting.observed_training import ModelCalls, ObservedTraining, Stepper, Steps
from autotune.training.apply_settings import Settings
from autotune.values.outcome import SETTLED_STEP

# Steps that show every module that training calls; then settings that change the model are applied.
SETTLED = SETTLED_STEP - 1
# Steps after which a compiled step has run, and nothing is left to do.
_DONE = SETTLED_STEP + 1

_PROCESS = tuple(k.name for k in ALL_KNOBS if type(k).on_process is not Knob.on_process)
_MODEL = (
    "channels_last",
    "compile_mode",
    "compile_dynamic",
    "compile_scope",
    "amp_dtype",
    "sdpa_backend",
)
# Read back from every model. Others can rightly differ: without convolutions there is no layout.
_OF_EACH_MODEL = ("compile_mode", "compile_dynamic")
_Modules = weakref.WeakKeyDictionary[nn.Module, None]
_NO_MODEL = "the script calls its model only inside code that it compiles"


@dataclass
class Interposition:
    """The hooks between one script and torch that apply settings and read them back."""

    config: TrainingConfig
    asked: frozenset[str]
    """Names of the knobs to apply."""
    by_flag: frozenset[str] = frozenset()
    """Names of the knobs that the script got by its own flags; they are only read back."""
    own: Mapping[str, Value] = field(default_factory=dict)
    """Settings of the untouched script; what it sets itself gives way to other values."""
    is_trial: bool = False
    """True if the script is timed. Its model is then observed in any case, and workers that cannot
    be started are an error instead of a reason to fall back."""
    observed: ObservedTraining = field(default_factory=ObservedTraining)
    stepping: Steps = field(default_factory=Steps)
    calls: ModelCalls = field(default_factory=ModelCalls)
    failed: dict[str, str] = field(default_factory=dict)
    """Knobs that could not be applied, each with the reason."""
    steps: int = 0
    """Steps of the optimizer that counts, until nothing is left to do."""
    _models: _Modules = field(default_factory=weakref.WeakKeyDictionary)
    """Modules that training called from outside of others, in this order."""
    _inside: weakref.WeakSet[nn.Module] = field(default_factory=weakref.WeakSet)
    _called: _Modules = field(default_factory=weakref.WeakKeyDictionary)
    """Those of `_models` that were called since the first step, in this order."""
    _restores: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.loaders = TrainingLoaders(self.config, self.asked, self.observed, self.fail)
        self.loaders.may_fall_back = not self.is_trial
        parts = (self._lay_out, self.fail, self._replaces)
        self.wrappings = wrappers.Wrappings(self.config, self.asked, *parts)

    def install(self) -> None:
        """Set up the hooks and apply the process-wide settings, just after torch was imported."""
        for name in (name for name in _PROCESS if name in self.asked):
            with self._guarded(name):
                KNOBS[name].on_process(self.config[name])
        for name in (name for name in _PROCESS if self._replaces(name)):
            with self._guarded(name):
                wrappers.keep(KNOBS[name])
        with self._guarded(*LOADER_KNOBS):
            self.loaders.watch()
        with self._guarded("optimizer_impl"):
            replaces = self._replaces("optimizer_impl")
            if replaces or self._wants("optimizer_impl"):
                wrappers.change_optimizers(self._settings.optimizer_kwargs(), replaces, self.fail)
        with self._guarded(*ARGUMENTS):
            names = filter(self._replaces, ARGUMENTS)
            changed = {ARGUMENTS[name]: self.config[name] for name in names}
            own_mode = self.own.get("compile_mode", self.config["compile_mode"])
            if changed and own_mode is not None:  # the script compiles by itself
                failed = partial(self.fail, "compile_mode")
                wrappers.change_compilation(changed, None if self.is_trial else failed)
        with self._guarded(*(knob.name for knob in RANK_KNOBS)):
            self.wrappings.watch(self.observed)
        with self._guarded(*_MODEL):
            self.stepping.watch()
            self.stepping.listeners.append(self._after_step)
            if self._counts_samples or self.asked.intersection(_MODEL):
                self._watch_models()
                self._watch_autocast()
            if self._counts_samples:
                self.stepping.passed.append(self.calls.passed)

    @property
    def _counts_samples(self) -> bool:
        return self.is_trial or "batch_size" in self.by_flag

    @functools.cached_property
    def _settings(self) -> Settings:
        return Settings(self.config)

    def fail(self, name: str, error: BaseException) -> None:
        """Note the first reason for which a setting could not be applied."""
        first_line = next(iter(str(error).strip().splitlines()), "no message")
        self.failed.setdefault(name, f"{type(error).__name__}: {first_line}")

    @contextmanager
    def _guarded(self, *names: str) -> Iterator[None]:
        """Record an error in this block as the failure of these knobs instead of raising it."""
        try:
            yield
        except Exception as error:
            for name in self.asked.intersection(names) or names[:1]:
                self.fail(name, error)

    def _watch_models(self) -> None:
        """Observe which modules the script calls directly, compiled ones included."""
        hook = nn.modules.module.register_module_forward_pre_hook(self._before_forward)
        # torch warns that the hook runs twice for a compiled module, which is harmless here.
        warnings.filterwarnings("ignore", message="Using `torch.compile.module.` when there are gl")

        def compiled(original: Any, module: nn.Module, *args: Any, **kwargs: Any) -> None:
            original(module, *args, **kwargs)
            inner: Any = compiled_call(module)  # hooks have no effect inside it

            @functools.wraps(inner)
            def call(*args: Any, **kwargs: Any) -> Any:
                if not torch.compiler.is_compiling() and self.steps < SETTLED:
                    self._before_forward(module, (*args, *kwargs.values()))
                return inner(*args, **kwargs)

            set_compiled_call(module, call)

        self._restores += [hook.remove, replace(nn.Module, "compile", compiled)]

    def _watch_autocast(self) -> None:
        """See in which format the script's own autocast runs, and replace it if asked for."""
        is_replaced = self._replaces("amp_dtype") and self.own["amp_dtype"] is not None
        saw = partial(setattr, self.observed, "autocast_dtype")
        undo = wrappers.watch_autocast(saw, is_replaced, self.config["amp_dtype"])
        if not is_replaced:
            self._restores.append(undo)

    def _before_forward(self, module: nn.Module, given: Iterable[Any]) -> None:
        """Record a module in training that is called from outside all known modules."""
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return
        if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            return  # no training, and sizes are tensors then
        with self._guarded(*_MODEL):
            if module not in self._inside:
                if not any(weight.requires_grad for weight in module.parameters()):
                    return
                self._inside.update(module.modules())
                if not self._models:
                    self.observed.model = wrappers.within_ddp(module)
                self._models[module] = None
                self._lay_out(module)
            if module in self._models:
                self._called[module] = None
                self.calls.called(given)
                device = next(weight.device.type for weight in module.parameters())
                if torch.is_autocast_enabled(device):
                    self.observed.autocast_dtype = torch.get_autocast_dtype(device)

    def _lay_out(self, module: nn.Module) -> None:
        """Set the memory layout before the first step, so that the optimizer's state has it."""
        if "channels_last" in self.asked:
            with self._guarded("channels_last"):
                KNOBS["channels_last"].on_model(self.config["channels_last"], module)

    def _trained(self) -> list[nn.Module]:
        """Return the outermost modules called since the first step, else all that were called."""
        called = list(self._called or self._models)
        inner = {part for model in called for part in model.modules() if part is not model}
        return [model for model in called if model not in inner]

    def _after_step(self, optimizer: Stepper) -> None:
        if self.loaders.is_news:
            with self._guarded(*LOADER_KNOBS):
                self.loaders.stepped()
        self.observed.loss_device = self.stepping.device
        self.observed.stepped(optimizer)
        if self.steps == _DONE or not self.observed.counts(optimizer):
            return
        with self._guarded(*_MODEL):
            self.steps += 1
            if self.steps == 1:
                self._called.clear()
            if self.steps == SETTLED:
                self._settle()
            self.loaders.gave = False
            if self.steps == _DONE:
                self.note(self.asked | self.by_flag)

    def _settle(self) -> None:
        """Compile the models that training calls, and wrap them in autocast, if asked for."""
        for restore in self._restores:
            restore()
        called = self._trained()
        models = list(map(wrappers.within_ddp, called))
        if models:
            self.observed.models, self.observed.ddp = models, wrappers.ddp_in(called[0])
        else:
            for name in self.asked.intersection(_MODEL):
                self.failed.setdefault(name, _NO_MODEL)
        if self._wants("compile_mode"):
            with self._guarded("compile_mode"):
                self._compile(models)
        if self._wants("amp_dtype") and not self.observed.autocast_dtype:
            with self._guarded("amp_dtype"):
                saw = partial(setattr, self.observed, "autocast_dtype")
                for model in models:
                    failed = partial(self.fail, "amp_dtype")
                    wrappers.under_autocast(model, self._settings.autocast, saw, failed)
        if self._wants("sdpa_backend"):
            with self._guarded("sdpa_backend"):
                # The first calls show which kernel of attention runs.
                kernel, value = KNOBS["sdpa_backend"], self.config["sdpa_backend"]
                for model in models:
                    if mentions_attention(model, ()):
                        wrappers.within(model, partial(kernel.forward_context, value, ""))
        if self._counts_samples and not self.loaders.gave:
            for model in called:
                wrappers.counted(model, self.calls)

    def _replaces(self, name: str) -> bool:
        """Return True if another value than the script's own is to be applied."""
        value = self.config[name]
        is_any = value is None and is_harmless(KNOBS[name])
        return name in self.asked and not is_any and value != self.own.get(name, value)

    def _wants(self, name: str) -> bool:
        """Return True if a setting other than off is to be applied."""
        return name in self.asked and bool(self.config[name])

    def _compile(self, models: Iterable[nn.Module]) -> None:
        for model in filter(wrappers.is_eager, models):
            compiled(model, self.config.as_dict())
            for module in [] if self.is_trial else compiled_modules(model):
                wrappers.or_eager(module, partial(self.fail, "compile_mode"))

    def note(self, names: Iterable[str]) -> None:
        """Record the present values of these knobs, as far as they can be read."""
        for knob in map(knob_named, names):
            with self._guarded(knob.name), suppress(LookupError):
                if knob.is_readable:
                    self.observed.note(knob)

    def overridden(self) -> dict[str, tuple[Value, Value]]:
        """Return the knobs that read back another value: name to (wanted, found).

        Knobs that cannot be read are added to `failed`.
        """
        found: dict[str, tuple[Value, Value]] = {}
        self.observed.batch_size = self.observed.batch_size or self.calls.size
        self.failed = self.loaders.refused | self.failed
        for knob, wanted in self.config.items():
            if knob.name in self.failed or not self._is_to_be_read(knob):
                continue
            if knob in RANK_KNOBS and self.observed.ddp is None and wanted != knob.default:
                self.failed[knob.name] = wrappers.NO_DDP
                continue
            try:
                values = [self.observed.read(knob)]
                if knob.name in _OF_EACH_MODEL:
                    values += self.observed.read_of_others(knob)
            except LookupError as error:
                self.failed[knob.name] = str(error)
                continue
            if others := [value for value in values if value != wanted]:
                found[knob.name] = (wanted, others[0])
        return found

    def _is_to_be_read(self, knob: Knob) -> bool:
        if knob.name in self.by_flag:
            # Models may not have been observed, and only a trial counts batches.
            is_counted = self.observed.batches is not None
            readable = knob.is_readable and (knob.name != "accumulation_steps" or is_counted)
            return knob.name not in _MODEL and readable
        # null means "off" for most knobs, but "whatever torch takes" for harmless ones.
        has_value = self.config[knob.name] is not None or not is_harmless(knob)
        return knob.name in self.asked and has_value
