"""The identity of a study: facts that must not change between its runs, and their comparison.

They are stored as a fact of the study, which is checked when it is read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, PositiveInt, TypeAdapter

from autotune.configuration.search_space import SearchSpace, whole_space
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.base import Effect, Value

FORMAT = 5
"""Number of the form in which a study is stored; others are not read."""
ALIKE = 0.01
"""Relative difference up to which two memory limits count as one machine's."""
_LONGEST = 60
# Facts that a study has only as digests, in words; modules that the file imports have their name.
_HASHED = {
    "model_sha256": "the contents of the file that trains",
    "script.arguments_sha256": "the script's arguments or maps",
    "argument_files_sha256": "the contents of the config files that the arguments name",
}
_MODULES = "modules"  # whose entries are paths
_DIGEST = re.compile(r"(None|[0-9a-f]{64}){2}")


@dataclass(frozen=True)
class _Known:
    """Facts of an identity that have an attribute."""

    baseline: dict[str, Value] = field(default_factory=dict)
    space: dict[str, list[Value]] = field(default_factory=dict)
    effects: dict[str, Effect] = field(default_factory=dict)
    memory_limit_bytes: PositiveInt = 1
    effective_batch: PositiveInt | None = None


def _checked(facts: dict[str, Any]) -> dict[str, Any]:
    TypeAdapter(_Known).validate_python(facts)
    return facts


@dataclass(frozen=True)
class Identity:
    """The facts for which a study was made, which must not change between its runs.

    Facts that are only compared have no attribute.
    """

    facts: Annotated[dict[str, Any], AfterValidator(_checked)] = field(default_factory=dict)

    @property
    def baseline(self) -> TrainingConfig:
        """The user's settings."""
        return TrainingConfig.of(self.facts["baseline"])

    @property
    def space(self) -> SearchSpace | None:
        """The search space before the diagnosis; None if it is not known."""
        domains = self.facts.get("space")
        if domains is None:
            return None
        baseline = TrainingConfig.of(self.facts.get("baseline", {}))
        held, effects = self.facts.get("effective_batch"), self.facts.get("effects", {})
        return SearchSpace(whole_space(domains, baseline), (), held, effects)

    @property
    def memory_limit_bytes(self) -> int | None:
        """Memory limit of every trial; None if it is not known."""
        return self.facts.get("memory_limit_bytes")

    @property
    def objective(self) -> str:
        """Name of the objective, with the samples of the run if it is the time of a run."""
        return str(self.facts.get("objective", "throughput"))

    @property
    def unit(self) -> str:
        """The unit of throughput: samples, or steps where a script's samples are unknown."""
        return str(self.facts.get("unit", "samples"))


def differences(known: Mapping[str, Any], identity: Mapping[str, Any]) -> list[str]:
    """Return a line for each fact that differs between the study and now, or is only in one."""
    now = json.loads(json.dumps(identity))
    return [
        f"  {line}"
        for name in {**now, **known}
        if not _is_same(name, known.get(name), now.get(name))
        for line in _told(name, known.get(name), now.get(name))
    ]


def _told(name: str, known: Any, now: Any) -> Iterator[str]:
    """Yield lines on a fact that differs: of a mapping, on its entries that do."""
    if isinstance(known, dict) and isinstance(now, dict):
        for key in {**now, **known}:
            if known.get(key) != now.get(key):
                told = key if name == _MODULES else f"{name}.{key}"
                yield from _told(told, known.get(key), now.get(key))
    elif _DIGEST.fullmatch(f"{known}{now}"):
        yield f"{_HASHED.get(name, name)}: not those of the study"
    else:
        yield f"{name}: {_short(known)} in the study, {_short(now)} now"


def _is_same(name: str, known: Any, now: Any) -> bool:
    """Compare two values; memory limits may differ by `ALIKE`, as they do from boot to boot."""
    if name == "memory_limit_bytes" and isinstance(known, int) and isinstance(now, int):
        return math.isclose(known, now, rel_tol=ALIKE)
    return bool(known == now)


def _short(fact: Any) -> str:
    text = json.dumps(fact)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
