"""Sequential tests of candidates whose rates a script tells, round by round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from autotune.comparison.candidate_choice import Posteriors
from autotune.comparison.rounds import Course, Participant
from autotune.comparison.sequential_test import Standing, sequential_test
from autotune.configuration.training_config import TrainingConfig
from autotune.values.measurement import Measurement
from autotune.values.outcome import Failure
from factories import measurement

BASELINE = TrainingConfig.of({"batch_size": 8})
OWN = Participant("baseline", BASELINE)
ONE_CHANGE = Participant("one", BASELINE.replace(batch_size=64))
TWO_CHANGES = Participant("two", BASELINE.replace(batch_size=64, channels_last=True))
THREE_CHANGES = Participant(
    "three", BASELINE.replace(batch_size=64, channels_last=True, amp_dtype="bfloat16")
)
Script = Callable[[str, int], Measurement | Failure]
"""Rates that a participant shows in a round."""


@dataclass
class ScriptedRounds:
    """A sequential test whose rates a script tells, with what was asked of whom."""

    script: Script
    memory_limit_bytes: int | None = None
    asked: list[tuple[str, int]] = field(default_factory=list)
    standings: list[Standing] = field(default_factory=list)

    def hold(
        self,
        *candidates: Participant,
        family: int | None = None,
        posteriors: Posteriors | None = None,
    ) -> Participant | None:
        """Return the winner; None without one."""
        course = Course(
            self._time,
            lambda _, run: run.samples_per_second,
            OWN,
            Path("confirm"),
            memory_limit_bytes=self.memory_limit_bytes,
        )
        self.standings = list(
            sequential_test(course, candidates, family or len(candidates), posteriors or {})
        )
        return self.standings[-1].winner

    @property
    def refused(self) -> dict[str, str]:
        return {one.name: why for s in self.standings for one, why in s.refused.items()}

    @property
    def set_aside(self) -> dict[str, str]:
        return {one.name: by.name for s in self.standings for one, by in s.set_aside.items()}

    @property
    def processes(self) -> dict[str, int]:
        return Counter(name for name, _ in self.asked)

    def _time(
        self, config: TrainingConfig, folder: Path, host: str | None
    ) -> Measurement | Failure:
        number, _, name = folder.name.partition("-")
        self.asked.append((name, int(number)))
        return self.script(name, int(number))


def steady(**rates: float) -> Script:
    """Return a script in which rates never change; the baseline has 100 samples/s."""
    return lambda name, number: measurement({"baseline": 100.0, **rates}[name])
