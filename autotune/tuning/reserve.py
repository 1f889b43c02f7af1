"""What a search keeps of its time for its conclusion: an estimate from what was measured so far."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import median, stdev

from autotune.knobs import KNOBS
from autotune.tuning.confirming.confirm import LOOKS, rounds_to_win
from autotune.tuning.confirming.rounds import TASK
from autotune.tuning.judging.accuracy import SEED_SECONDS, probe_seconds
from autotune.tuning.judging.seeds import seeds_to_come
from autotune.tuning.scene import Scene
from autotune.tuning.storing.finished import TRAINED_AS
from autotune.tuning.storing.own_runs import noted_runs
from autotune.tuning.storing.study import FinishedTrial, TuningStudy, best_feasible

RUN_SECONDS = "baseline_run_seconds"
"""Of the study's notes."""
LIMITS_SECONDS = 6.0
"""About what timing the loader and the computation of the answer alone takes."""
_PLAY_OFF_OF_TRIALS, _PLAY_OFF_OF_BUDGET = 1 / 2, 1 / 10
_ROUND = TASK.plan
# Of what compiling took, what it takes when it is in the cache: 1.1 to 1.7 s were measured where
# it had taken 4 to 24 s (digits_cnn).
_FROM_CACHE = 1 / 4
# A few runs of the baseline may agree by chance.
_LEAST_NOISE = 0.05


@dataclass(frozen=True)
class Reserve:
    """Of a study that has its baseline."""

    scene: Scene
    study: TuningStudy

    def seconds(self) -> float:
        """Of a play-off, rounds until what leads has probably won, its seeds, stages' limits.

        Where time is up, a contest goes no further than its next look.
        """
        rounds = self._rounds() * self._round_seconds()
        return self.play_off_seconds() + rounds + self._proof_seconds() + LIMITS_SECONDS

    def play_off_seconds(self) -> float:
        """What timing candidates again may take: a share of the trials' time, and of a budget."""
        trials = sum(map(trial_seconds, self.study.finished()[1:]))
        budget = self.scene.time_budget_seconds or math.inf
        return min(_PLAY_OFF_OF_TRIALS * trials, _PLAY_OFF_OF_BUDGET * budget)

    def run_seconds(self) -> float:
        """What the baseline takes from when it is asked for until its outcome is there."""
        return float(self.study.noted(RUN_SECONDS, self._baseline.details["process_seconds"]))

    @property
    def _baseline(self) -> FinishedTrial:
        return self.study.finished()[0]

    @cached_property
    def _best(self) -> FinishedTrial | None:
        """What leads; None while that is the baseline."""
        best = best_feasible(self.study.finished())
        return None if best is None or best.number == self._baseline.number else best

    def _rounds(self) -> int:
        """How many it takes where what leads is as much faster as it seems."""
        best, own = self._best, self._baseline.verdict.value
        if best is None or not best.verdict.value or not own:
            return LOOKS[0]
        rates = [math.log(run.samples_per_second) for run in noted_runs(self.study) or ()]
        noise = max(_LEAST_NOISE, stdev(rates) if len(rates) > 1 else 0.0)
        return rounds_to_win(math.log(best.verdict.value / own), noise)

    def _proof_seconds(self) -> float:
        """Of the seeds that may be needed to prove what leads, and of the baseline beside it."""
        script = self.scene.options.script
        silent = script is not None and script.metric is None
        if silent or all(KNOBS[name].effect == "exact" for name in self.scene.space.varied()):
            return 0.0
        # While nothing leads, of somebody who is yet to come.
        trained_as = "" if self._best is None else str(self._best.details.get(TRAINED_AS))
        a_seed = self.study.noted(SEED_SECONDS, probe_seconds(self.scene))
        return float(seeds_to_come(self.scene, self.study, trained_as) * a_seed)

    def _round_seconds(self) -> float:
        """Of a new interpreter, and in it the baseline and the best trial, as long as rounds time.

        What a timing takes beside its blocks is known of both.
        """
        own, start = _in_a_round(self._baseline, self.run_seconds()), self.scene.start_seconds
        if self._best is None:
            return start + 2 * own
        return start + own + _in_a_round(self._best, seconds_again(self._best) - start)


def trial_seconds(trial: FinishedTrial) -> float:
    """What a finished trial took: its process, or until it failed."""
    return float(trial.details.get("process_seconds") or trial.details["seconds"])


def seconds_again(trial: FinishedTrial) -> float:
    """What timing it once more takes: what was compiled for it is in the cache by then."""
    compiling = float(trial.details.get("compile_seconds") or 0.0)
    return trial_seconds(trial) - (1 - _FROM_CACHE) * compiling


def _in_a_round(trial: FinishedTrial, seconds: float) -> float:
    """What a timing takes whose blocks are those of a round, where a trial's took `seconds`."""
    run = trial.details.get("measurement", {"blocks": []})
    blocks = [block["seconds"] for block in run["blocks"]]
    # A block of slow steps is one step, however short it was to be.
    fewest = _ROUND.looks[0] * median(blocks) if blocks else 0.0
    return float(max(0.0, seconds - sum(blocks)) + max(_ROUND.max_seconds, fewest))
