"""Sequential tests of candidates whose rates a script tells, round by round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from autotune.comparison.candidate_choice import Choosing, Posteriors, choose
from autotune.comparison.rounds import Conditions, Course, PairedComparison, Participant
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
    """A sequential test whose rates a script tells, with what was asked of whom.

    Several candidates have rounds that choose one of them first. Rounds are counted through.
    """

    script: Script
    memory_limit_bytes: int | None = None
    asked: list[tuple[str, int]] = field(default_factory=list)
    choices: list[Choosing] = field(default_factory=list)
    standings: list[Standing] = field(default_factory=list)
    chosen_after: int = 0

    def hold(
        self, *candidates: Participant, family: int = 1, posteriors: Posteriors | None = None
    ) -> Participant | None:
        """Return the winner; None without one."""
        course = Course(
            self._time,
            lambda _, run: run.samples_per_second,
            OWN,
            Path("confirm"),
            memory_limit_bytes=self.memory_limit_bytes,
        )
        self.choices, self.standings, self.chosen_after = [], [], 0
        if len(candidates) > 1:
            for state in choose(course, candidates, posteriors or {}):
                self.choices.append(state)
                candidates = tuple(
                    one
                    for one in candidates
                    if one not in state.failed and one not in state.set_aside
                )
        if not candidates:
            return None
        self.chosen_after = len(self.choices)
        self.standings = list(sequential_test(course, candidates[0], family))
        return candidates[0] if self.standings[-1].is_won else None

    @property
    def comparison(self) -> PairedComparison:
        """The rounds of the last test."""
        return self.standings[-1].comparison

    @property
    def refused(self) -> dict[str, str]:
        chosen = {one.name: why for state in self.choices for one, why in state.failed.items()}
        tested = next(name for name, _ in reversed(self.asked) if name != OWN.name)
        why = [s.failed or s.beaten for s in self.standings if s.failed or s.beaten]
        return chosen | dict.fromkeys([tested], why[-1]) if why else chosen

    @property
    def set_aside(self) -> dict[str, str]:
        return {one.name: by.name for s in self.choices for one, by in s.set_aside.items()}

    @property
    def processes(self) -> dict[str, int]:
        return Counter(name for name, _ in self.asked)

    def _time(
        self, config: TrainingConfig, folder: Path, conditions: Conditions
    ) -> Measurement | Failure:
        text, _, name = folder.name.partition("-")
        number = int(text) + self.chosen_after
        self.asked.append((name, number))
        return self.script(name, number)


def steady(**rates: float) -> Script:
    """Return a script in which rates never change; the baseline has 100 samples/s."""
    return lambda name, number: measurement({"baseline": 100.0, **rates}[name])
