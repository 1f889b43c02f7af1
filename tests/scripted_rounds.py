"""Races of candidates whose rates a script tells, round by round."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from autotune.comparison.race import Standing, Without, race
from autotune.comparison.rounds import Course, PairedComparison, Participant
from autotune.configuration.job import MeasurePlan
from autotune.configuration.training_config import TrainingConfig
from autotune.values.measurement import Measurement
from autotune.values.outcome import Failure
from factories import measurement

BASELINE = TrainingConfig.of({"batch_size": 8})
OWN = Participant("baseline", BASELINE)
ONE_CHANGE = Participant("one", BASELINE.replace(batch_size=64))
TWO_CHANGES = Participant("two", BASELINE.replace(batch_size=64, channels_last=True))
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

    def hold(self, candidate: Participant, *lacking: Participant, family: int = 1) -> bool:
        """Return whether the candidate wins, beside others that lack settings of it."""
        course = Course(self._time, lambda _, run: run.samples_per_second, OWN, Path("confirm"))
        self.standings = list(race(course, candidate, family, lacking))
        return self.standings[-1].has_won

    @property
    def comparison(self) -> PairedComparison:
        """The candidate against the baseline."""
        return self.standings[-1].comparison

    @property
    def without(self) -> dict[str, Without]:
        """What is known in the end of those that lack settings."""
        return {one.name: known for one, known in self.standings[-1].without.items()}

    @property
    def processes(self) -> dict[str, int]:
        return Counter(name for name, _ in self.asked)

    def _time(
        self, config: TrainingConfig, folder: Path, plan: MeasurePlan, host: str | None, seed: int
    ) -> Measurement | Failure:
        number, _, name = folder.name.partition("-")
        self.asked.append((name, int(number)))
        self.hosts.append(host)
        return self.script(name, int(number))


def steady(**rates: float) -> Script:
    """Return a script in which rates never change; the baseline has 100 samples/s."""
    return lambda name, number: measurement({"baseline": 100.0, **rates}[name])
