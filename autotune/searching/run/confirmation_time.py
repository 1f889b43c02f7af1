"""Time budget of the conclusion: the seconds that a search keeps for its end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median, stdev

from autotune.accuracy.probes import seed_seconds
from autotune.accuracy.seeds import seeds_to_come
from autotune.comparison.rounds import TASK, has_own_host
from autotune.comparison.sequential_test import LOOKS, rounds_to_win
from autotune.configuration.training_config import environ_of
from autotune.context.search_context import SearchContext
from autotune.knobs import KNOBS
from autotune.study.study import FinishedTrial, TuningStudy, best_feasible

LIMITS_SECONDS = 6.0
"""Approximate seconds to time loader and computation of the result, each alone."""
_RE_TIMING_OF_TRIALS, _RE_TIMING_OF_BUDGET = 1 / 2, 1 / 10
ROUND = TASK.plan
"""Plan of each timing in a round."""
# Share of the compile time that is left when the cache is warm. Measured on digits_cnn: 1.1 to
# 1.7 s instead of 4 to 24 s.
_FROM_CACHE = 1 / 4
# Least noise of a timing, as a logarithm, because a few baseline runs may agree by chance.
_LEAST_NOISE = 0.05
# A trial that gains less over the baseline, as a logarithm, is no candidate to keep time for.
_LEAST_GAIN = 0.02
# Largest share of the budget that is kept while there is no candidate yet.
_MOST_UNCLAIMED = 1 / 3


@dataclass(frozen=True)
class ConfirmationTime:
    """Estimates of the seconds that a search needs for its end; the study holds a baseline."""

    context: SearchContext
    study: TuningStudy

    def seconds(self) -> float:
        """Estimate the seconds to finish: re-timing, rounds, missing seeds, stages' limits.

        Without a candidate, they are those that one may need, at most a third of the budget.
        """
        rounds = self._rounds() * self.round_seconds()
        end = self.re_timing_seconds() + rounds + self._proof_seconds() + LIMITS_SECONDS
        if self.candidate is not None:
            return end
        return min(end, _MOST_UNCLAIMED * (self.context.time_budget_seconds or math.inf))

    @cached_property
    def candidate(self) -> FinishedTrial | None:
        """The best feasible trial, if it is faster than the baseline beyond the noise."""
        return self._best if self._best is not None and self.is_candidate(self._best) else None

    def is_candidate(self, trial: FinishedTrial) -> bool:
        """Return whether a trial's gain over the baseline exceeds the noise between processes."""
        value, own = trial.verdict.value, self._baseline.verdict.value
        return bool(value and own and math.log(value / own) > self._noise(_LEAST_GAIN))

    def re_timing_seconds(self) -> float:
        """Return the seconds allowed for re-timing: half of the trials' time, a tenth of a budget.

        The smaller of the two counts.
        """
        trials = sum(map(trial_seconds, self.study.finished()[1:]))
        budget = self.context.time_budget_seconds or math.inf
        return min(_RE_TIMING_OF_TRIALS * trials, _RE_TIMING_OF_BUDGET * budget)

    def run_seconds(self) -> float:
        """Return the seconds of a baseline process, from its request to its outcome."""
        known = self.study.notes.run_seconds
        return float((self._baseline.details.process_seconds or 0.0) if known is None else known)

    @property
    def _baseline(self) -> FinishedTrial:
        return self.study.finished()[0]

    @cached_property
    def _best(self) -> FinishedTrial | None:
        """The incumbent; None while that is the baseline."""
        best = best_feasible(self.study.finished())
        return None if best is None or best.number == self._baseline.number else best

    def _rounds(self) -> int:
        """Return the rounds to confirm the incumbent, if it is as much faster as it seems."""
        best, own = self._best, self._baseline.verdict.value
        if best is None or not best.verdict.value or not own:
            return LOOKS[0]
        return rounds_to_win(math.log(best.verdict.value / own), self._noise(_LEAST_NOISE))

    def _noise(self, least: float) -> float:
        """Return the deviation of the log rate between baseline processes, at least `least`."""
        rates = [math.log(run.samples_per_second) for run in self.study.notes.baseline_runs or ()]
        return max(least, stdev(rates) if len(rates) > 1 else 0.0)

    def _proof_seconds(self) -> float:
        """Return the seconds of the seeds that may be missing, of incumbent and baseline."""
        varied = self.context.space.varied()
        is_exact = all(KNOBS[name].effect == "exact" for name in varied)
        if is_exact or not self.context.options.workload.has_quality:
            return 0.0
        # Without an incumbent, no seed of the candidate to come is known.
        training_equivalent = (
            "" if self._best is None else str(self._best.details.training_equivalent)
        )
        a_seed = seed_seconds(self.context, self.study)
        return seeds_to_come(self.context, self.study, training_equivalent) * a_seed

    def round_seconds(self) -> float:
        """Return the seconds of a round, in which the baseline and the incumbent are timed."""
        own = _again_in_a_round(self._baseline, self.run_seconds())
        best = own
        if self._best is not None:
            best = _again_in_a_round(self._best, seconds_again(self._best))
        if self._best is not None and environ_of(self._best.config):
            # With environment variables to set, neither is forked from a host with the dataset.
            return own + best + self.context.start_seconds + self.context.dataset_seconds
        return own + best + round_host_seconds(self.context)


def trial_seconds(trial: FinishedTrial) -> float:
    """Return the seconds that timing a finished trial took, or until it failed."""
    details = trial.details
    return details.timing_seconds or details.process_seconds or details.seconds or 0.0


def seconds_again(trial: FinishedTrial) -> float:
    """Return the seconds of timing a trial once more, with its compiled code in the cache."""
    compiling = trial.details.compile_seconds or 0.0
    return trial_seconds(trial) - (1 - _FROM_CACHE) * compiling


def round_host_seconds(context: SearchContext) -> float:
    """Return the seconds to start the host of a round of two; 0 if it has no host of its own."""
    return context.host_seconds if has_own_host(context.host_seconds, participants=2) else 0.0


def in_a_round(blocks: Sequence[float], seconds: float) -> float:
    """Return the seconds of a timing in a round, estimated from one under another plan.

    Args:
        blocks: seconds of that timing's blocks, which those of a round replace.
        seconds: seconds of that whole process.
    """
    # A block has at least one step, however slow.
    fewest = ROUND.looks[0] * median(blocks) if blocks else 0.0
    return float(max(0.0, seconds - sum(blocks)) + max(ROUND.max_seconds, fewest))


def _again_in_a_round(trial: FinishedTrial, seconds: float) -> float:
    run = trial.details.measurement
    return in_a_round([] if run is None else [block.seconds for block in run.blocks], seconds)
