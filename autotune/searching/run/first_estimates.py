"""First estimates of a search: its seconds before the first trial, and what it needs at least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from autotune.accuracy.accuracy_verdict import SEEDS, probe_seconds
from autotune.comparison.sequential_test import LOOKS
from autotune.context.budget_clock import Clock
from autotune.context.search_context import SearchContext
from autotune.searching.run.events import CostsMeasured
from autotune.searching.run.seconds import (
    in_a_round,
    process_seconds,
    round_host_seconds,
    timed_seconds,
)
from autotune.searching.run.time_budget import LIMITS_SECONDS, PLAN, RUNS, needs_accuracy
from autotune.study.study import TuningStudy
from autotune.values.measurement import Measurement

_DIAGNOSIS_SECONDS = 5.0


@dataclass(frozen=True)
class FirstEstimates:
    """Estimates before the first trial, from the plan of a timing and the baseline's processes."""

    context: SearchContext
    study: TuningStudy
    clock: Clock

    def before_runs(self, taken: Sequence[float]) -> float:
        """Estimate the seconds until the result, with further baseline processes to come.

        `taken` holds the seconds of those that are over.
        """
        host = 0.0 if taken else self.context.host_seconds
        left = max(1, RUNS - len(taken)) * _a_run(taken)  # a disturbed process is repeated
        return host + left + self.before_probes(taken)

    def before_probes(self, taken: Sequence[float]) -> float:
        """Estimate the seconds until the result, with the baseline's accuracy to be measured."""
        return self._a_seed() + self.context.start_seconds + self.before_diagnosis(taken)

    def before_diagnosis(self, taken: Sequence[float]) -> float:
        """Estimate the seconds until the result, with the diagnosis to come next."""
        context, each = self.context, _a_run(taken)
        diagnosis = context.start_seconds + _DIAGNOSIS_SECONDS
        a_round = round_host_seconds(context) + 2 * each
        # A candidate's seeds need as many of the baseline's beside them, hence twice.
        conclusion = LOOKS[0] * a_round + 2 * len(SEEDS) * self._a_seed()
        conclusion += LIMITS_SECONDS
        trials = (min(context.trials, context.space.size) - 1) * (context.start_seconds + each)
        if context.time_budget_seconds is not None:
            rest = context.time_budget_seconds - self.clock.elapsed - diagnosis - conclusion
            trials = min(trials, max(0.0, rest))
        return diagnosis + trials + conclusion

    def least_seconds(self, run: Measurement, trials: int) -> float:
        """Return the fewest seconds from the baseline's first process to a result.

        Each trial is assumed to take as long as that process, and the fewest rounds to decide. One
        accuracy seed of the baseline is counted, because some results need no more.

        Args:
            run: the baseline's first process.
            trials: number of trials beside the baseline.
        """
        each = process_seconds(run)
        rounds = LOOKS[0] * self._round_seconds(run, each)
        return (RUNS - 1 + trials) * each + self._a_seed() + rounds

    def enough_seconds(self, run: Measurement, trials: int) -> float:
        """Estimate the seconds from the first process to a result, if a candidate is found.

        Beside `least_seconds`, they cover the diagnosis, a drift check, the limits, and the
        accuracy of each trial and of the candidate.

        Args:
            run: the baseline's first process.
            trials: number of trials beside the baseline.
        """
        each = process_seconds(run)
        start = each - timed_seconds(run)
        once = each + self.context.start_seconds + _DIAGNOSIS_SECONDS
        once += LIMITS_SECONDS
        seed = start + self._a_seed()
        # A candidate's seeds need as many of the baseline's beside them, hence twice.
        accuracy = trials * (start + seed) + 2 * len(SEEDS) * seed
        accuracy *= needs_accuracy(self.context)
        return self.least_seconds(run, trials) + once + accuracy

    def costs(self, runs: Sequence[Measurement]) -> CostsMeasured:
        """Return the seconds of trials, rounds and seeds, from the baseline's processes."""
        context, notes = self.context, self.study.notes
        each = self.run_seconds(runs)
        timing = min(each, median(map(timed_seconds, runs)))
        dataset = 0.0 if context.is_dataset_shared else context.dataset_seconds
        return CostsMeasured(
            start_seconds=max(0.0, each - timing - dataset),
            timing_seconds=timing,
            dataset_seconds=context.dataset_seconds,
            is_dataset_shared=context.is_dataset_shared,
            round_seconds=median(self._round_seconds(run, each) for run in runs),
            seed_seconds=notes.seed_seconds if context.options.workload.has_quality else None,
        )

    def run_seconds(self, runs: Sequence[Measurement]) -> float:
        """Return the median seconds of a baseline process, from its request to its outcome.

        If the study does not know them, they are estimated from the baseline's `runs`.
        """
        known = self.study.notes.run_seconds
        return median(map(process_seconds, runs)) if known is None else known

    def _round_seconds(self, run: Measurement, seconds: float) -> float:
        """Return the seconds of a round with the baseline and one candidate that is as fast.

        `seconds` are those of the whole baseline process of `run`.
        """
        return 2 * in_a_round(run, seconds) + round_host_seconds(self.context)

    def _a_seed(self) -> float:
        """Return the seconds of training on one seed; 0 for a script without a metric."""
        return probe_seconds(self.context) if self.context.options.workload.has_quality else 0.0


def _a_run(taken: Sequence[float]) -> float:
    return median(taken) if taken else PLAN.max_seconds
