"""Races of candidates whose rates a script tells, round by round."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from autotune.comparison.race import Standing, race
from autotune.comparison.rounds import Conditions, Course, PairedComparison, Participant
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
    """A race whose rates a script tells, with what was asked of whom. Rounds count through."""

    script: Script
    asked: list[tuple[str, int]] = field(default_factory=list)
    standings: list[Standing] = field(default_factory=list)
    hosts: list[str | None] = field(default_factory=list)
    """Host of each process."""

    def hold(self, *candidates: Participant, family: int = 1) -> Participant | None:
        """Return the winner; None without one."""
        course = Course(self._time, lambda _, run: run.samples_per_second, OWN, Path("confirm"))
        self.standings = list(race(course, candidates, family))
        return self.standings[-1].winner

    @property
    def choices(self) -> list[Standing]:
        """The states while rounds chose one of several."""
        return [standing for standing in self.standings if not standing.is_test]

    @property
    def tests(self) -> list[Standing]:
        """The states while rounds tested the one that was left."""
        return [standing for standing in self.standings if standing.is_test]

    @property
    def comparison(self) -> PairedComparison:
        """The rounds of the test."""
        told = (one for state in reversed(self.tests) for one in state.comparisons.values())
        return next(told)

    @property
    def refused(self) -> dict[str, str]:
        """Why candidates left, but for slower ones."""
        failed = {one.name: why for state in self.standings for one, why in state.failed.items()}
        beaten = {
            one.name: state.beaten
            for state in self.standings
            for one in state.comparisons
            if state.beaten
        }
        return failed | beaten

    @property
    def set_aside(self) -> dict[str, str]:
        return {one.name: by.name for s in self.choices for one, by in s.slower.items()}

    @property
    def processes(self) -> dict[str, int]:
        return Counter(name for name, _ in self.asked)

    def _time(
        self, config: TrainingConfig, folder: Path, conditions: Conditions
    ) -> Measurement | Failure:
        number, _, name = folder.name.partition("-")
        self.asked.append((name, int(number)))
        self.hosts.append(conditions.host)
        return self.script(name, int(number))


def steady(**rates: float) -> Script:
    """Return a script in which rates never change; the baseline has 100 samples/s."""
    return lambda name, number: measurement({"baseline": 100.0, **rates}[name])
