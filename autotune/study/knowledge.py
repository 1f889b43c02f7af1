"""Knowledge from finished trials: which configurations need no measurement any more, and why."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from autotune.configuration.constraints import Verdict
from autotune.configuration.training_config import BATCH_KNOBS, TrainingConfig, render
from autotune.knobs.base import Value, spelled
from autotune.study.facts import FinishedTrial

# An infeasible trial's stored value stays this far below the best feasible one, because the
# dashboard picks its best trial only by value.
BELOW_BEST = 0.97
_DIGITS = 6
MODE = "compile_mode"
_MOST_FAILED_MODE = 2


class _Training(NamedTuple):
    """A training, rounding aside."""

    departures: frozenset[tuple[str, Value]]
    """Its differences from the baseline's course."""
    batch: int
    """Its effective batch."""

    def __str__(self) -> str:
        settings = render(dict(sorted(self.departures)))
        return settings and f" with {settings}"


class Knowledge:
    """Finished trials and conclusions from them.

    Only one thread at a time may call `learn`. Other threads may read meanwhile, because the
    collections that they read are replaced, not changed.
    """

    def __init__(self) -> None:
        self.finished: tuple[FinishedTrial, ...] = ()
        """Finished trials in the order of their numbers."""
        self.lost: Counter[TrainingConfig] = Counter()
        """Times that this process lost a configuration to a fault of the infrastructure."""
        self.died: Counter[TrainingConfig] = Counter()
        """Times that a process died while it measured a configuration, which may be why."""
        self._worse: tuple[_Training, ...] = ()
        self._undecided: frozenset[_Training] = frozenset()
        self._news: list[FinishedTrial] = []
        self._known: set[TrainingConfig] = set()
        self._too_large: dict[tuple[object, ...], int] = {}
        self._failed_modes: Counter[Value] = Counter()
        self._ran_modes: set[Value] = set()
        self._broken_modes: tuple[Value, ...] = ()
        self._ineffective: tuple[tuple[str, Value], ...] = ()

    def learn(self, trial: FinishedTrial) -> FinishedTrial:
        """Add a finished trial, and return it."""
        self.finished = tuple(sorted((*self.finished, trial), key=lambda one: one.number))
        self._news.append(trial)
        self._known.add(trial.config)
        self._refuse(trial)
        is_slow = trial.details.outcome == "timed_out"
        if is_slow or trial.verdict.margins["memory"] > 0:
            key = (_any_batch_of_a_step if is_slow else _any_batch)(trial.config)
            batch = int(trial.config["batch_size"] or 0)
            self._too_large[key] = min(batch, self._too_large.get(key, batch))
        if knob := trial.details.not_applied:
            self._leave_out(knob, trial.config)
        if trial.verdict.value is not None:
            self._ran_modes.add(trial.config[MODE])
        elif trial.verdict.margins["ran"] > 0 and self._is_modest(trial.config):
            self._failed_modes[trial.config[MODE]] += 1
        failed = self._failed_modes.items()
        often = (mode for mode, count in failed if mode and count >= _MOST_FAILED_MODE)
        self._broken_modes = tuple(mode for mode in often if mode not in self._ran_modes)
        return trial

    def _leave_out(self, knob: str, config: TrainingConfig) -> None:
        """Note that a value did not take effect, unless a trial ran with it."""
        value = config[knob]
        if not any(t.config[knob] == value for t in self.finished if t.verdict.value is not None):
            self._ineffective = tuple(dict.fromkeys((*self._ineffective, (knob, value))))

    def _refuse(self, trial: FinishedTrial) -> None:
        """Note the training of a trial that seeds refused, or left in doubt."""
        decided = trial.details.seeds_decided
        if decided is None or trial.verdict.margins["accuracy"] <= 0:
            return
        training = self._trained(trial.config)
        if decided != "reject":
            self._undecided |= {training}
        elif not any(self._covers(one, training) for one in self._worse):
            others = (one for one in self._worse if not self._covers(training, one))
            self._worse = (*others, training)

    def _trained(self, config: TrainingConfig) -> _Training:
        return _Training(config.departures(self.finished[0].config), config.effective_batch)

    @property
    def _own_batch(self) -> int:
        return self.finished[0].config.effective_batch

    def _is_modest(self, config: TrainingConfig) -> bool:
        """Return True for the baseline's precision and at most twice its batch size.

        A failure of such a configuration is put down to its compile mode.
        """
        own = self.finished[0].config
        small = int(config["batch_size"] or 0) <= 2 * int(own["batch_size"] or 0)
        return small and config["amp_dtype"] == own["amp_dtype"]

    def news(self) -> list[FinishedTrial]:
        """Return the trials added since the last call."""
        news, self._news = self._news, []
        return news

    def is_known(self, config: TrainingConfig) -> bool:
        """Return True if `config` needs no measurement.

        It was measured, trains exactly like one that seeds refused, takes even fewer steps than one
        that trained worse by too few, has at least the batch size of one that ran out of memory
        or time, is compiled in a broken mode, or has a value that did not take effect.
        """
        if config in self._known or config[MODE] in self._broken_modes:
            return True
        if self._worse or self._undecided:
            training = self._trained(config)
            covered = any(self._covers(one, training) for one in self._worse)
            if covered or training in self._undecided:
                return True
        # A mode left training eager and none ran, so what it calls is at fault.
        if config[MODE] and not self._ran_modes - {None} and MODE in dict(self._ineffective):
            return True
        if any(config[knob] == value for knob, value in self._ineffective):
            return True
        limits = map(self._too_large.get, (_any_batch(config), _any_batch_of_a_step(config)))
        batch = int(config["batch_size"] or 0)
        return any(limit is not None and limit <= batch for limit in limits)

    def _covers(self, one: _Training, other: _Training) -> bool:
        """Return True if `other` is worse where `one` is: it departs as far, in steps as large.

        Fewer steps of the same rate train less. Of smaller batches than the baseline's, nothing is
        known but what was trained.
        """
        larger = other.batch >= one.batch >= self._own_batch
        return one.departures <= other.departures and (larger or other.batch == one.batch)

    def is_given_up(self, config: TrainingConfig) -> bool:
        """Return True if `config` was tried again after it was lost, and lost again."""
        return max(self.lost[config], self.died[config]) > 1

    def left_out(self) -> list[str]:
        """Return what is not tried any more, each with the reason."""
        modes, values = self._broken_modes, self._ineffective
        larger = (one for one in self._worse if one.batch > self._own_batch)
        return [
            *(
                f"effective batches of {n.batch} and more{n}, since {n.batch} trained worse"
                for n in larger
            ),
            *(f"compile_mode={mode}, which failed again and again and never ran" for mode in modes),
            *(f"{name}={spelled(value)}, which did not take effect" for name, value in values),
        ]

    def stored_value(self, verdict: Verdict) -> float:
        """Return the value for Optuna and its dashboard, with six digits.

        It is the trial's own value if the trial is feasible, else one below the best. The exact
        value is an attribute of the trial.
        """
        told = [trial.verdict for trial in self.finished]
        worst = min((v.value for v in told if v.value is not None), default=0.0)
        value = worst if verdict.value is None else verdict.value
        if not verdict.feasible or verdict.value is None:
            best = [v.value for v in told if v.feasible and v.value is not None]
            value = min(value, BELOW_BEST * max(best, default=value))
        return float(f"{value:.{_DIGITS}g}")


def _any_batch_of_a_step(config: TrainingConfig) -> tuple[object, ...]:
    """Return such a key for as many batches in a step, on which the time of a step depends."""
    return (*_any_batch(config), config["accumulation_steps"])


def _any_batch(config: TrainingConfig) -> tuple[object, ...]:
    """Return a key that is equal for configurations that differ only in their batch size.

    The number of batches in a step may differ as well, unless it is one.
    """
    others = (setting for setting in config.as_dict().items() if setting[0] not in BATCH_KNOBS)
    return (*others, config["accumulation_steps"] != 1)
