"""Hold knobs to their contract: a value is in force, is read back, and can be replaced.

Each function yields what is broken, in a sentence without a name of the knob.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice, repeat
from typing import Any

from torch.utils.data import Dataset, IterableDataset, default_collate

from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.base import Knob, Value, spelled
from autotune.training.apply_settings import Settings
from autotune.training.ranks import ALONE, World
from autotune.training.training_setup import TrainingSetup, apply, build_dataset
from autotune.training.workload import Workload
from autotune.values.machine import Machine

_SAMPLES = 8
_SHORTEST = 10


@dataclass(frozen=True)
class Trained:
    """A training loop that has taken one step, and the step's loss."""

    setup: TrainingSetup
    loss: float


@dataclass(frozen=True)
class Bench:
    """A workload and the settings beside which each value of a knob is tried."""

    workload: Workload
    device: str
    settings: Mapping[str, Value]
    dataset: Dataset[Any]
    world: World = ALONE
    """The processes that train together; knobs of several need a process group."""

    @classmethod
    def of(
        cls, workload: Workload, device: str, settings: Mapping[str, Value], world: World = ALONE
    ) -> Bench:
        """Build the dataset of a workload, once for all values."""
        return cls(workload, device, settings, build_dataset(workload.under(settings)), world)

    def trained(self, **settings: Value) -> Trained:
        """Apply settings beside the others to this process, build the training and take a step."""
        config = TrainingConfig.of({**self.settings, **settings})
        Settings(config).apply_to_process()
        workload = self.workload.under(config.as_dict())
        setup = apply(config, workload, self.device, 0, self.dataset, self.world)
        setup.model.train()
        return Trained(setup, one_step(setup))


def one_step(setup: TrainingSetup) -> float:
    """Take a step on a batch that is collated here, without workers; return the loss."""
    dataset: Any = setup.loader.dataset
    if isinstance(dataset, IterableDataset):
        samples = list(islice(dataset, _SAMPLES))
    else:
        samples = [dataset[index] for index in range(min(_SAMPLES, len(dataset)))]
    collate = setup.workload.collate_fn or default_collate
    return setup.step(repeat(collate(samples))).item()


def text_faults(texts: Mapping[str, str]) -> Iterator[str]:
    """Yield the texts that are no sentence."""
    for name, text in texts.items():
        if not text.endswith(".") or len(text) <= _SHORTEST:
            yield f"{name} must be a sentence with a full stop, not {text!r}"


def suggestion_faults(knob: Knob, machine: Machine) -> Iterator[str]:
    """Yield the values that are suggested for a machine and are not legal, possible or new."""
    suggested = knob.suggestions(machine)
    if not suggested:
        yield "suggestions is empty"
    if len(set(suggested)) < len(suggested):
        yield f"suggestions has a value twice: {', '.join(map(spelled, suggested))}"
    for value in suggested:
        if fault := knob.values.fault(value):
            yield f"suggestions has {value!r}, which is not possible; {fault}"
        elif reason := knob.obstacle(value, machine):
            yield f"suggestions has {spelled(value)}, which obstacle refuses: {reason}"
    if reason := knob.obstacle(knob.resolve(knob.default, machine), machine):
        yield f"obstacle refuses the default {spelled(knob.default)}: {reason}"


def value_faults(bench: Bench, knob: Knob, value: Value) -> Iterator[str]:
    """Yield what is broken with a value: it trains, is read back, and so it stays when repeated.

    Args:
        bench: the settings under which the knob means something.
        knob: the knob.
        value: one that it can have here.
    """
    name, trained = knob.name, bench.trained(**{knob.name: value})
    setup, text = trained.setup, spelled(value)
    if not math.isfinite(trained.loss):
        yield f"with {text} the loss of a step is {trained.loss}"
    if missed := setup.not_applied():
        yield from _misread(name, text, missed)
        return
    knob.on_process(value)
    again = replace(setup, model=knob.on_model(value, setup.model))
    one_step(again)
    yield from _misread(name, f"{text}, applied twice,", again.not_applied())


def return_faults(bench: Bench, name: str, value: Value, default: Value) -> Iterator[str]:
    """Yield what is broken if the default follows on a value in one process, as checks do it."""
    bench.trained(**{name: value})
    missed = bench.trained(**{name: default}).setup.not_applied()
    yield from _misread(name, f"{spelled(default)}, the default after {spelled(value)},", missed)


def _misread(name: str, text: str, missed: Iterable[tuple[str, Value, Value]]) -> Iterator[str]:
    for other, wanted, found in missed:
        if other == name:
            yield (
                f"{text} reads back as {spelled(found)}; put it into force in a hook, and ask the "
                "live process in read_back"
            )
        else:
            yield f"with {text} {other} reads back as {spelled(found)}, not {spelled(wanted)}"
