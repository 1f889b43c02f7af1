"""What is known of configurations, and which of them need not be measured any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from autotune.config import TrainingConfig
from autotune.constraints import Verdict
from autotune.knobs.base import Value
from autotune.tuning.storing.finished import FinishedTrial, overruled, ruling_on

# An infeasible trial's stored value stays this far below the best feasible one, because the
# dashboard picks its best trial by value alone.
BELOW_BEST = 0.97
_DIGITS = 6
# A configuration that was lost is tried again when the others are done, but not for ever.
_MOST_LOST = 1
# Whose process died is tried once more: it may have been its doing.
_MOST_ABANDONED = 1
MODE = "compile_mode"
_MOST_FAILED_MODE = 2


class Knowledge:
    """Finished trials, and what follows from them.

    One thread at a time learns. Others read meanwhile, so what they see is replaced as a whole.
    """

    def __init__(self) -> None:
        self.finished: tuple[FinishedTrial, ...] = ()
        """In the order of their numbers."""
        self.lost: Counter[TrainingConfig] = Counter()
        """By this process, to faults of the infrastructure."""
        self.abandoned: Counter[TrainingConfig] = Counter()
        """By processes that died."""
        self.interrupted: dict[TrainingConfig, None] = {}
        """By a person, or by a process's death: to be tried before others."""
        self._rulings: Mapping[str, Any] = {}
        self.amended = (0, 0)
        """How many rulings there were, and trials, when the database was last amended."""
        self._news: list[FinishedTrial] = []
        self._known: set[TrainingConfig] = set()
        self._smallest_oom: dict[tuple[Value, ...], int] = {}
        self._failed_modes: Counter[Value] = Counter()
        self._ran_modes: set[Value] = set()
        self._broken_modes: tuple[Value, ...] = ()

    def learn(self, trial: FinishedTrial) -> FinishedTrial:
        """A trial more."""
        trial = overruled(trial, self._rulings)
        self.finished = tuple(sorted((*self.finished, trial), key=lambda one: one.number))
        self._news.append(trial)
        self._known.add(trial.config)
        if trial.verdict.margins["memory"] > 0:
            key, batch = _any_batch(trial.config), int(trial.config["batch_size"] or 0)
            self._smallest_oom[key] = min(batch, self._smallest_oom.get(key, batch))
        if trial.verdict.value is not None:
            self._ran_modes.add(trial.config[MODE])
        elif trial.verdict.margins["ran"] > 0 and self._is_modest(trial.config):
            self._failed_modes[trial.config[MODE]] += 1
        failed = self._failed_modes.items()
        often = (mode for mode, count in failed if mode and count >= _MOST_FAILED_MODE)
        self._broken_modes = tuple(mode for mode in often if mode not in self._ran_modes)
        return trial

    def overrule(self, rulings: Mapping[str, Any]) -> None:
        """What is known of the accuracy of kinds of training by now, whatever was told before."""
        self._rulings = rulings
        self.finished = tuple(overruled(trial, rulings) for trial in self.finished)

    def is_overruled(self, number: int, attributes: Mapping[str, Any]) -> bool:
        """Whether the trial of that number counts no longer as accurate enough."""
        return ruling_on(number, attributes, self._rulings) is not None

    def _is_modest(self, config: TrainingConfig) -> bool:
        """Whether little but the mode is to blame: the same numbers, at most twice the batch."""
        own = self.finished[0].config
        small = int(config["batch_size"] or 0) <= 2 * int(own["batch_size"] or 0)
        return small and config["amp_dtype"] == own["amp_dtype"]

    def news(self) -> list[FinishedTrial]:
        """What was learnt since the last time."""
        news, self._news = self._news, []
        return news

    def is_known(self, config: TrainingConfig) -> bool:
        """Measured already, larger than what ran out of memory, or compiled in a broken mode."""
        if config in self._known or config[MODE] in self._broken_modes:
            return True
        smallest = self._smallest_oom.get(_any_batch(config))
        return smallest is not None and smallest <= int(config["batch_size"] or 0)

    def is_given_up(self, config: TrainingConfig) -> bool:
        """Lost so often that nobody tries it any more."""
        return self.lost[config] > _MOST_LOST or self.abandoned[config] > _MOST_ABANDONED

    def broken_modes(self) -> list[Value]:
        """Ways to compile that failed again and again with modest settings, and never ran."""
        return list(self._broken_modes)

    def stored_value(self, verdict: Verdict) -> float:
        """The value that Optuna is told, as its dashboard shows it: its own where it is feasible.

        With as many digits as a person reads; the study keeps the whole value as an attribute.
        """
        return float(f"{self._told_value(verdict):.{_DIGITS}g}")

    def _told_value(self, verdict: Verdict) -> float:
        if verdict.feasible and verdict.value is not None:
            return verdict.value
        told = [trial.verdict for trial in self.finished]
        best = [v.value for v in told if v.feasible and v.value is not None]
        worst = min((v.value for v in told if v.value is not None), default=0.0)
        measured = worst if verdict.value is None else verdict.value
        return min(measured, BELOW_BEST * max(best, default=measured))


def params_of(config: TrainingConfig, varied: Mapping[str, tuple[Value, ...]]) -> dict[str, Value]:
    """Optuna's parameters for a configuration.

    An idle knob has a value outside its domain; any value stands for it.
    """
    return {
        name: config[name] if config[name] in values else values[0]
        for name, values in varied.items()
    }


def _any_batch(config: TrainingConfig) -> tuple[Value, ...]:
    """What two configurations share that differ in their batch size alone."""
    return tuple(value for name, value in config.as_dict().items() if name != "batch_size")
