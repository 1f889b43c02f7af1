"""Search spaces: the values of each knob to try on this machine, for this workload."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random

from autotune.configuration.space_file import SpaceFile
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import ALL_KNOBS
from autotune.knobs.base import Knob, Value, spelled
from autotune.knobs.older_names import present_name, present_value
from autotune.values.errors import UsageError
from autotune.values.machine import Machine
from autotune.values.workload_facts import WorkloadFacts


@dataclass(frozen=True)
class SearchSpace:
    """Knob name to the values it may take, for every knob; a frozen knob has one."""

    domains: Mapping[str, tuple[Value, ...]]
    notes: tuple[str, ...] = ()
    """Remarks on values and knobs that were dropped for this machine, with reasons."""

    @cached_property
    def size(self) -> int:
        """Return the number of different configurations; an idle knob counts once."""
        needed = {knob.needs for knob in ALL_KNOBS if knob.needs}
        free = math.prod(
            len(self.domains[knob.name])
            for knob in ALL_KNOBS
            if knob.needs is None and knob.name not in needed
        )
        return free * math.prod(self._size_with_dependents(name) for name in sorted(needed))

    def noted(self, notes: Iterable[str]) -> SearchSpace:
        """Return the space with further notes."""
        return replace(self, notes=(*self.notes, *notes))

    def varied(self) -> dict[str, tuple[Value, ...]]:
        """Return the knobs with more than one value."""
        return {name: values for name, values in self.domains.items() if len(values) > 1}

    def configurations(self) -> Iterator[TrainingConfig]:
        """Yield every different configuration once."""
        return iter(self._all)

    def sample(self, random: Random) -> TrainingConfig:
        """Draw a configuration uniformly, knob by knob."""
        return TrainingConfig.of({name: random.choice(v) for name, v in self.domains.items()})

    def within(self, config: TrainingConfig) -> TrainingConfig:
        """Return `config` with each value outside of its domain replaced by the nearest one."""
        return TrainingConfig.of({n: _nearest(config[n], v) for n, v in self.domains.items()})

    def neighbours(self, config: TrainingConfig) -> Iterator[TrainingConfig]:
        """Yield every configuration that differs from `config` in one knob's setting."""
        for name, values in self.varied().items():
            for value in values:
                neighbour = config.replace(**{name: value})
                if neighbour != config:
                    yield neighbour

    @cached_property
    def _all(self) -> tuple[TrainingConfig, ...]:
        choices = itertools.product(*self.domains.values())
        settings = (dict(zip(self.domains, values, strict=True)) for values in choices)
        return tuple(dict.fromkeys(map(TrainingConfig.of, settings)))

    def _size_with_dependents(self, needed: str) -> int:
        dependents = math.prod(
            len(self.domains[knob.name]) for knob in ALL_KNOBS if knob.needs == needed
        )
        return sum(dependents if value else 1 for value in self.domains[needed])


def _nearest(value: Value, domain: tuple[Value, ...]) -> Value:
    """Return the number that is off by the smallest factor; else the first value."""
    if value in domain:
        return value
    numbers = [v for v in domain if type(v) is int]
    if type(value) is not int or not numbers:
        return domain[0]
    return min(numbers, key=lambda number: abs(math.log2((1 + number) / (1 + value))))


def whole_space(
    domains: Mapping[str, Sequence[Value]], baseline: TrainingConfig
) -> dict[str, tuple[Value, ...]]:
    """Return the values of every knob, given those that an earlier version knew.

    A knob that it did not know has the baseline's value.
    """
    known = {
        present_name(name): tuple(present_value(name, value) for value in values)
        for name, values in domains.items()
    }
    return {knob.name: known.get(knob.name, (baseline[knob.name],)) for knob in ALL_KNOBS}


def narrow(
    file: SpaceFile, machine: Machine, facts: WorkloadFacts | None, baseline: TrainingConfig
) -> SearchSpace:
    """Return the part of a space that can be searched here; the baseline is always in it.

    Raises:
        UsageError: the file is not portable and has values that this machine cannot run.
    """
    faults: list[str] = []
    notes: list[str] = []
    domains: dict[str, tuple[Value, ...]] = {}
    for knob in ALL_KNOBS:
        offered = file.offers.get(knob.name, ())
        others = [value for value in offered if value != baseline[knob.name]]
        irrelevant = knob.irrelevance(facts) if facts and others else None
        if irrelevant:
            notes.append(f"{knob.name} stays {spelled(baseline[knob.name])}: {irrelevant}")
            offered = ()
        if knob.needs is not None and not any(domains[knob.needs]):
            offered = ()  # what it needs stays off
        kept = []
        for index, value in enumerate(offered):
            obstacle = knob.obstacle(value, machine)
            if obstacle and not file.portable:
                place = file.document.position(knob.name, index)
                faults.append(
                    f"{place}: {knob.name}={spelled(value)} is not possible on this machine; "
                    f"{obstacle}."
                )
            elif obstacle or (obstacle := _too_large(knob, value, facts)):
                notes.append(f"{knob.name}={spelled(value)} dropped: {obstacle}")
            else:
                kept.append(knob.resolve(value, machine))
        # The baseline's value of an idle knob (null without workers) is no value to try.
        idle = knob.needs is not None and not baseline[knob.needs] and kept
        domains[knob.name] = tuple(dict.fromkeys(kept if idle else [*kept, baseline[knob.name]]))
    if faults:
        raise UsageError("\n".join(faults))
    return SearchSpace(domains, tuple(notes))


def _too_large(knob: Knob, value: Value, facts: WorkloadFacts | None) -> str | None:
    if knob.name != "batch_size" or facts is None or facts.dataset_samples is None:
        return None
    if isinstance(value, int) and value > facts.dataset_samples:
        return f"the dataset has {facts.dataset_samples} samples"
    return None
