"""Observe what a script does by itself: its loaders, settings and speed. Nothing is changed."""

from __future__ import annotations

import gc
import inspect
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from autotune.calling.target import import_folder
from autotune.configuration.job import Observe
from autotune.configuration.script import is_harmless
from autotune.configuration.training_config import BATCH_KNOBS
from autotune.knobs import ALL_KNOBS, KNOBS, process_settings
from autotune.knobs.base import Knob, Value
from autotune.knobs.compile import COMPILE_KNOBS, is_compiled, repeated_blocks
from autotune.knobs.model import IMAGE_DIMENSIONS, fills_memory, mentions_attention
from autotune.knobs.process import at_start
from autotune.knobs.ranks import RANK_KNOBS
from autotune.knobs.stepping import has_equal_groups
from autotune.process.common.imports import own_modules
from autotune.scripting.loaders import LOADER_KNOBS
from autotune.scripting.losses import Moves
from autotune.scripting.wrappers import NO_DDP, PASSES_IT
from autotune.training.batches import STREAM
from autotune.training.profiling import stages_of
from autotune.training.ranks import Lap, comm_dtypes
from autotune.training.timing import StepRequests, Timer
from autotune.training.watching import Watch
from autotune.values.outcome import Diagnosed, Observed, WorkloadFacts

if TYPE_CHECKING:
    from autotune.scripting.trial import Trial

NO_LOADER = "no torch DataLoader feeds training"
_OWN_ITERATOR = "{kind} has its own __iter__"
_NO_SAMPLES = "neither a DataLoader nor the model's input shows the samples of a step"
BY_HAND = "the script updates its weights without a torch optimizer"
_COMPILES_PARTS = "the script compiles parts of its model itself"
_COMPILES = "the script itself chooses what it compiles"
# Steps before the speed is measured, and steps over which it is: fewer where those take long.
_FIRST = 3
_STEPS, _FEWEST = 10, 3
_LONG_SECONDS = 5.0


class Observation:
    """An observation of a script's first steps."""

    def __init__(self, trial: Trial, task: Observe) -> None:
        self._trial, self._task = trial, task
        self._observed, self._stream = trial.observed, trial.stream
        self._losses, self._interposition = trial.losses, trial.interposition
        self._before = process_settings()
        self._seen: Observed | None = None
        self._watch: Watch | None = None

    def observing(self) -> StepRequests[Observed]:
        """Yield numbers of steps for the script to take, then return what was observed.

        Stages are those of a script in one process.
        """
        stream, world, device = self._stream, self._trial.world, self._observed.device
        self._losses.recorder.moves = Moves(self._observed.trained)
        timer = Timer(stream, compilations=lambda: self._trial.compiler.events)
        first = yield from timer.lap(_FIRST)
        if self._task.watch_seconds:
            self._watch = Watch(stream, device, world)
            stream.looks.append(self._watch.look)
        collections = gc.get_stats()[0]["collections"]
        lap = yield from timer.lap(world.told(timed_steps(first.seconds / _FIRST)))
        collections = gc.get_stats()[0]["collections"] - collections
        self._seen = self._outcome(world.shares(lap), collections / lap.steps)
        if world.is_alone:
            self._seen = replace(self._seen, stages=(yield from self._stages(timer, self._seen)))
        if self._watch is not None:
            watching = self._watch.watching(self._task.watch_seconds)
            self._seen = replace(self._seen, profiled=(yield from watching))
        if not self._task.loss_seconds:
            return self._seen
        step_seconds = lap.seconds / lap.steps
        loss = yield from self._losses.observing(self._task, self._trial.deadline, step_seconds)
        return replace(self._seen, loss=loss)

    def ended(self) -> Observed | None:
        """Return what was observed until the script ended by itself; None if it was too little."""
        if self._seen is not None and self._watch is not None:
            return replace(self._seen, profiled=self._watch.found())
        if self._seen is None or not self._task.loss_seconds:
            return self._seen
        return replace(self._seen, loss=self._losses.observed(self._task))

    def _stages(self, timer: Timer, outcome: Observed) -> StepRequests[Diagnosed | None]:
        """Time the phases of a step; None if they cannot be separated."""
        stream = self._stream
        if stream.is_read_apart:
            return None
        loader, size, per_step = None, 1, 1
        if stream.counts_samples:
            size, per_step = max(1, round(stream.samples_per_batch)), stream.accumulation_steps
        if stream.is_fed:
            loader, size = stream.loader, int(outcome.workload.baseline["batch_size"] or 1)
        return (yield from stages_of(timer, self._observed.device, loader, size, per_step))

    def _outcome(self, laps: Sequence[Lap], collections: float) -> Observed:
        """Return what is known after the laps of all processes, with the collections of a step."""
        loader = self._stream.loader if self._stream.is_fed else None
        loaders = self._interposition.loaders
        if loader is None:
            self._observed.batch_size = self._stream.calls.size
        settings = {knob.name: self._read(knob.name) for knob in ALL_KNOBS}
        settings["batch_size"] = self._observed.batch_size or round(self._stream.samples_per_batch)
        own = {name: self._stays(KNOBS[name]) for name in self._own(settings)}
        fixed = {name: why for name, why in own.items() if why} | self._fixed(settings)
        device, cuda = self._observed.device, os.environ.get("CUDA_VISIBLE_DEVICES")
        world = self._trial.world
        own_lap = laps[world.rank]
        pace = own_lap.steps / max(own_lap.seconds, 1e-9)
        waits = max(lap.wait_seconds / max(lap.seconds, 1e-9) for lap in laps)
        return Observed(
            device=device.type if device.type == "cpu" else f"{device.type}:{device.index or 0}",
            loaders=tuple(loaders.all_names),
            training_loader="" if loader is None else loaders.names.get(loader, "unknown"),
            steps_per_second=pace,
            samples_per_second=pace * sum(world.shares(self._stream.samples_per_step)),
            wait_share=min(1.0, waits),
            recompilations=sum(lap.compilations for lap in laps) // 2,
            counts_samples=self._stream.counts_samples,
            fixed=fixed,
            own=tuple(name for name in own if name not in fixed),
            scales=self._losses.recorder.scales,
            workload=self._facts(settings, collections),
            processes=world.size,
            # None if the script has left it as it was.
            visible_devices=None if cuda == at_start("CUDA_VISIBLE_DEVICES") else cuda,
        )

    def _read(self, name: str) -> Value:
        """Return a knob's present value; PyTorch's default if it has none or an illegal one."""
        try:
            value = KNOBS[name].read_back(self._observed)
        except LookupError:
            return KNOBS[name].default
        return KNOBS[name].default if KNOBS[name].values.fault(value) else value

    def _stays(self, knob: Knob) -> str:
        try:
            return knob.stays(self._observed)
        except LookupError as error:
            return str(error)

    def _own(self, settings: dict[str, Value]) -> dict[str, None]:
        """Return the names of the knobs that the script sets itself."""
        process = process_settings()
        changed = [name for name, value in process.items() if value != self._before[name]]
        changed += ["compile_dynamic"] if settings["compile_mode"] else []
        changed += self._passed()
        others = (
            knob.name
            for knob in ALL_KNOBS
            if not (is_harmless(knob) or knob.name in (*BATCH_KNOBS, *process))
            and settings[knob.name] != knob.default
        )
        return dict.fromkeys((*others, *changed))

    def _fixed(self, settings: dict[str, Value]) -> dict[str, str]:
        """Return further knobs that stay as the script has them, each with the reason."""
        fixed = self._fixed_in_ddp()
        if self._stream.is_fed:
            if isinstance(self._loader_dataset(), IterableDataset):
                fixed["num_workers"] = STREAM
        else:
            own = {type(it) for it in gc.get_objects() if issubclass(type(it), DataLoader)}
            kinds = sorted(
                kind.__name__ for kind in own if kind.__iter__ is not DataLoader.__iter__
            )
            why = _OWN_ITERATOR.format(kind=kinds[0]) if kinds else NO_LOADER
            fixed |= dict.fromkeys(LOADER_KNOBS, why)
        if not self._stream.counts_samples:
            fixed["batch_size"] = _NO_SAMPLES
        if self._observed.is_updated_by_hand:
            fixed |= dict.fromkeys(("optimizer_impl", "gc", "merge_param_groups"), BY_HAND)
        elif "fused" not in inspect.signature(type(self._observed.optimizer)).parameters:
            fixed["optimizer_impl"] = "the script's optimizer has no fused kernel"
        return fixed | self._fixed_in_compilation(settings["compile_mode"])

    def _fixed_in_compilation(self, mode: Value) -> dict[str, str]:
        """Return the knobs of torch.compile that stay where the script calls it itself."""
        if not any(map(is_compiled, self._parts())):
            return {}
        knob = KNOBS["compile_mode"]
        is_whole = None not in (mode, *self._observed.read_of_others(knob))
        if why := knob.stays(self._observed) if is_whole else _COMPILES_PARTS:
            return dict.fromkeys((knob.name for knob in COMPILE_KNOBS), why)
        return {"compile_scope": _COMPILES}

    def _fixed_in_ddp(self) -> dict[str, str]:
        """Return the knobs of DDP that the script sets itself; all of them without a DDP."""
        ddp = self._observed.ddp
        if self._trial.world.is_alone:
            return {}
        if ddp is None:
            return {knob.name: NO_DDP for knob in RANK_KNOBS}
        return {name: PASSES_IT for name in self._passed() if self._stays(KNOBS[name])}

    def _passed(self) -> list[str]:
        """Return the knobs that the script sets in its DDP; none without one."""
        ddp = None if self._trial.world.is_alone else self._observed.ddp
        return [] if ddp is None else self._interposition.wrappings.passed(ddp)

    def _parts(self) -> Iterator[nn.Module]:
        return (part for model in self._observed.models for part in model.modules())

    def _facts(self, settings: dict[str, Value], collections: float) -> WorkloadFacts:
        job, models = self._trial.job, self._observed.models
        assert job.model_path is not None and job.script is not None  # noqa: PT018
        path, formats = Path(job.model_path), None
        if not self._trial.world.is_alone:
            with self._interposition.stepping.aside():
                formats = () if self._observed.ddp is None else comm_dtypes(self._observed.device)
        is_by_hand = self._observed.is_updated_by_hand
        dataset, weights = self._loader_dataset(), self._observed.parameters
        sized = hasattr(dataset, "__len__") and not isinstance(dataset, IterableDataset)
        return WorkloadFacts(
            dataset_samples=len(dataset) if sized else None,
            image_batches=any(weight.dim() in IMAGE_DIMENSIONS for weight in weights),
            optimizer_options=True,
            has_evaluate=False,
            baseline=settings,
            model_tensors=len(weights),
            sample_bytes=self._stream.sample_bytes,
            # By their path from the script, or from where -m imports it.
            local_modules=own_modules(path, import_folder(path, job.script.module)),
            repeated_blocks=any(repeated_blocks(model) for model in models[:1]),
            attention=any(mentions_attention(model, [path]) for model in models),
            equal_groups=not is_by_hand and has_equal_groups(self._observed.optimizer),
            fills_memory=fills_memory(),
            collections=collections,
            comm_dtypes=formats,
        )

    def _loader_dataset(self) -> Any:
        loader = self._stream.loader
        return loader.dataset if loader is not None and self._stream.is_fed else None


def timed_steps(step_seconds: float) -> int:
    """Return the steps over which the speed is measured, where one has taken so many seconds."""
    return max(_FEWEST, min(_STEPS, int(_LONG_SECONDS / max(step_seconds, 1e-9))))
