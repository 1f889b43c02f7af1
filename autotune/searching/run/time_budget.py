"""Time of a search: what each of its parts costs, and the plan for the seconds that are left.

Each number has one function: it was measured, or else is estimated. The clock is in
`autotune.process.stop`, the seconds of accuracy seeds in `autotune.accuracy`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median, stdev

from autotune.accuracy import accuracy_verdict
from autotune.comparison.race import ROUND_COUNTS, rounds_to_win
from autotune.comparison.rounds import PLAN as ROUND
from autotune.comparison.rounds import has_own_host
from autotune.configuration.training_config import TrainingConfig, environ_of
from autotune.context.search_context import SearchContext
from autotune.knobs.base import Value
from autotune.process.stop import Clock
from autotune.study.facts import FinishedTrial, best_feasible
from autotune.study.study import TuningStudy
from autotune.values.measurement import Measurement

# Seconds to compile with a warm cache, and the share of the compile time that they take beside
# these. Measured: 1.1 to 1.7 s instead of 4 to 24 s for a small CNN, 1.9 s instead of 36 s for a
# ResNet-10.
_CACHE_SECONDS, _FROM_CACHE = 1.0, 1 / 20
# Assumed seconds to compile a model of _USUAL_TENSORS parameter tensors in each mode. Half of them
# grow with the number: in mode default two slow cores took 9 s for 4, 33 s for 72, 58 s for 161.
_COMPILE_SECONDS: Mapping[Value, float] = {
    "lite": 10.0,
    "default": 20.0,
    "reduce-overhead": 25.0,
    "max-autotune-no-cudagraphs": 90.0,
    "max-autotune": 100.0,
}
_LONGEST_KNOWN = max(_COMPILE_SECONDS.values())
_USUAL_TENSORS = 33


def process_seconds(run: Measurement) -> float:
    """Return the seconds from the start of the process to the end of its last block.

    Seconds that a warm host paid once for all of its forks do not count.
    """
    return run.start_seconds + run.build_seconds - run.shared_seconds + timed_seconds(run)


def timed_seconds(run: Measurement) -> float:
    """Return the seconds of all steps, including the warm-up, and of the epoch boundaries."""
    return (
        sum(run.warmup_step_seconds)
        + sum(block.seconds for block in run.blocks)
        + sum(run.boundary_seconds)
    )


def trial_seconds(trial: FinishedTrial) -> float:
    """Return the seconds that timing a finished trial took, or until it failed."""
    return trial.details.timing_seconds or trial.details.seconds or 0.0


def saved_by_cache(compile_seconds: float) -> float:
    """Return the seconds that compiling the same code takes less with a warm cache."""
    return max(0.0, (1 - _FROM_CACHE) * compile_seconds - _CACHE_SECONDS)


def compiles_alike(one: TrainingConfig, other: TrainingConfig) -> bool:
    """Return whether both compile the same code: equivalent training with as many threads.

    The one that ran first compiled for both, which must not count against it.
    """
    same_threads = one["num_threads"] == other["num_threads"]
    return same_threads and one.quality_key() == other.quality_key()


def in_a_round(run: Measurement | None, seconds: float, warmup_samples: int = 0) -> float:
    """Return the seconds of a timing in a round, estimated from one under another plan.

    Args:
        run: that timing, whose blocks those of a round replace; None if it is not known.
        seconds: seconds of that whole process.
        warmup_samples: samples of the other side's warm-up, since both warm up on as many.
    """
    blocks = [] if run is None else [block.seconds for block in run.blocks]
    more = 0 if run is None else max(0, warmup_samples - run.warmup_samples)
    longer = more / run.samples_per_second if run is not None and more else 0.0
    # A block has at least one step, however slow.
    fewest = ROUND.block_counts[0] * fmean(blocks) if blocks else 0.0
    warming_up = max(0.0, seconds - sum(blocks)) + min(longer, ROUND.max_seconds)
    return float(warming_up + max(ROUND.max_seconds, fewest))


def round_host_seconds(context: SearchContext) -> float:
    """Return the seconds to start the host of a round of two; 0 if it has no host of its own."""
    return context.host_seconds if has_own_host(context.host_seconds, participants=2) else 0.0


def round_seconds(context: SearchContext, run: Measurement | None, seconds: float) -> float:
    """Return the seconds of a round with the baseline and one candidate that is as fast.

    `seconds` are those of the whole baseline process of `run`.
    """
    return 2 * in_a_round(run, seconds) + round_host_seconds(context)


RUNS = 3
"""Number of baseline processes; two processes differ by more than the blocks of one."""
_DIAGNOSIS_SECONDS = 5.0
LIMITS_SECONDS = 6.0
"""Approximate seconds to count the arithmetic of the result, and to time that of the machine."""
FEWEST_TRIALS = 4
"""Fewest other configurations that must be measured to claim "nothing was faster"."""
OVERTIME = 1 / 10
"""Share of the time budget by which what has begun may exceed it."""
# Seconds to time a candidate without some of its settings, as shares of the trials' and the budget.
_LACKING_OF_TRIALS, _LACKING_OF_BUDGET = 1 / 2, 1 / 10
# Least noise of a timing, as a logarithm, because a few baseline runs may agree by chance.
_LEAST_NOISE = 0.05
# A trial that gains less over the baseline, as a logarithm, is no candidate to keep time for.
_LEAST_GAIN = 0.02
# Largest share of the budget that a candidate to come may need, while there is none.
_MOST_UNCLAIMED = 1 / 3
# Seconds of judging trials for each of timing them, while trials run.
_JUDGING = 1.5
# Average number of seeds until a configuration of new training is refused or validated.
_SEEDS_OF_A_TRIAL = 2


def measured_trials(finished: Sequence[FinishedTrial]) -> list[FinishedTrial]:
    """Return the trials that trained and were timed, without the baseline."""
    return [trial for trial in finished[1:] if trial.details.samples_per_second is not None]


def needed_trials(context: SearchContext) -> int:
    """Return the number of configurations that must be measured, as far as the limits allow."""
    return min(FEWEST_TRIALS, context.trials - 1, context.space.size - 1)


def least_seconds(context: SearchContext, run: Measurement, trials: int) -> float:
    """Return the fewest seconds from the baseline's first process to a result.

    Each trial is assumed to take as long as that process, and the fewest rounds to decide. One
    accuracy seed of the baseline is counted, because some results need no more. `run` is the
    baseline's first process; `trials` come beside it.
    """
    each = process_seconds(run)
    rounds = ROUND_COUNTS[0] * round_seconds(context, run, each)
    return (RUNS - 1 + trials) * each + _first_seed_seconds(context) + rounds


def enough_seconds(context: SearchContext, run: Measurement, trials: int) -> float:
    """Estimate the seconds from the first process to a result, if a candidate is found.

    Beside `least_seconds`, they cover the diagnosis, a drift check, the limits, and the accuracy of
    each trial and of the candidate.
    """
    each = process_seconds(run)
    start = each - timed_seconds(run)
    once = each + context.start_seconds + _DIAGNOSIS_SECONDS + LIMITS_SECONDS
    seed = start + _first_seed_seconds(context)
    # A candidate's seeds need as many of the baseline's beside them. To a loss, each may be longer.
    seeds = 2 * len(accuracy_verdict.SEEDS)
    if context.objective.to_loss:
        seeds = (1 + accuracy_verdict.PATIENCE) * accuracy_verdict.INCUMBENT_SEEDS
    accuracy = trials * (start + seed) + seeds * seed
    return least_seconds(context, run, trials) + once + accuracy * needs_accuracy(context)


def _first_seed_seconds(context: SearchContext) -> float:
    """Return the seconds of training on one seed; 0 for a script without a metric."""
    return accuracy_verdict.probe_seconds(context) if context.judge.has_quality else 0.0


@dataclass(frozen=True)
class TimeBudget:
    """Seconds of one run of a search: those left, and those that its parts will take."""

    prober: accuracy_verdict.AccuracyProber
    clock: Clock

    @property
    def context(self) -> SearchContext:
        """The context of the search."""
        return self.prober.context

    @property
    def study(self) -> TuningStudy:
        """The study of the search."""
        return self.prober.study

    def seconds_left(self) -> float:
        """Return the seconds left for trials; infinite without a budget.

        The seconds to confirm the current candidate are set aside. If the time is too short for the
        seeds of the best trial, the rounds of one that needs none are. Otherwise nothing is,
        because a result that keeps the baseline needs no confirmation.
        """
        if self.candidate is not None:
            return self.clock.left - self.conclusion_seconds()
        is_faster = self._best is not None and self.is_candidate(self._best)
        return self.clock.left - (self.rounds_seconds(None) if is_faster else 0.0)

    def eta_seconds(self) -> float:
        """Estimate the seconds until best.yaml is written.

        A trial to come is expected to take the median of those so far: one that compiled for
        minutes or failed at once says little of the others.
        """
        finished = len(self.study.finished())
        trials = max(0, min(self.context.trials, self.context.space.size) - finished)
        trials_seconds = trials * self.next_trial_seconds() / self.context.options.resources.at_once
        left = min(trials_seconds, max(0.0, self.seconds_left()))
        most = self.clock.left + OVERTIME * (self.clock.seconds or 0.0)
        return min(left + self.conclusion_seconds(), max(0.0, most))

    @cached_property
    def candidate(self) -> FinishedTrial | None:
        """The trial to keep time for: the fastest that there is time to confirm; None without one.

        It is faster than the baseline beyond the noise. One that needs seeds is also faster beyond
        the noise than those that need none.
        """
        feasible = (one for one in self.study.finished()[1:] if one.verdict.feasible)
        found = [one for one in feasible if self.is_candidate(one) and self.fits(one)]
        noise = max(_LEAST_NOISE, self.noise)
        return max(
            found,
            key=lambda one: self.gain(one) - (noise if self.seeds_seconds(one) else 0.0),
            default=None,
        )

    def fits(self, trial: FinishedTrial | None) -> bool:
        """Return whether the time left has the seeds of a trial's next test, and then its rounds.

        A trial that needs no seeds always fits: its rounds may take less than estimated. None is a
        trial to come, of whose training no seed is known.
        """
        seeds = self.seeds_seconds(trial)
        return not seeds or self.clock.left >= seeds + self.rounds_seconds(trial)

    def can_win(self, config: TrainingConfig) -> bool:
        """Return whether a configuration may become the answer: its seeds are known, or may accept.

        The time left has to have them, and its rounds.
        """
        return not self.prober.unknown([config])[0] or (self.prober.can_accept and self.fits(None))

    def has_seeds(self, training: str, count: int) -> bool:
        """Return whether seeds of a training up to `count` are worth their time while trials run.

        The time left has to have them and what follows: the confirmation of the current candidate,
        or without one the training's own rounds. Nor may short trainings take much more of a budget
        than timing trials, because the early leader is seldom the result.
        """
        if self.clock.seconds is None:
            return True
        seeds = self.prober.missing_seconds(training, count)
        one = self.candidate
        after = self.rounds_seconds(one) + (self.seeds_seconds(one) if one else 0.0)
        finished = self.study.finished()
        timing = sum(map(trial_seconds, finished))
        judging = sum(max(0.0, (t.details.seconds or 0.0) - trial_seconds(t)) for t in finished[1:])
        return self.clock.left >= seeds + after and judging + seeds <= _JUDGING * timing

    def is_candidate(self, trial: FinishedTrial) -> bool:
        """Return whether a trial's gain over the baseline exceeds the noise between processes."""
        return self.gain(trial) > max(_LEAST_GAIN, self.noise)

    def gain(self, trial: FinishedTrial) -> float:
        """Return the logarithm of a trial's gain over the baseline; -inf if it has no value."""
        value, own = trial.verdict.value, self._baseline.verdict.value
        return math.log(value / own) if value and own else -math.inf

    @cached_property
    def missing_trials(self) -> int:
        """Number of configurations still to be measured before nothing may be called faster."""
        return max(0, needed_trials(self.context) - len(measured_trials(self.study.finished())))

    def next_trial_seconds(self) -> float:
        """Return the seconds of a trial to come: the median of those so far, accuracy included."""
        trials = self.study.finished()[1:]
        whole = [max(trial_seconds(trial), trial.details.seconds or 0.0) for trial in trials]
        return median(whole or [self.run_seconds()])

    def trial_cost(self, configs: Sequence[TrainingConfig]) -> list[float]:
        """Estimate the seconds of a trial of each configuration, accuracy seeds included."""
        a_trial = median(map(trial_seconds, self.study.finished()))
        a_seed, compiling = self.prober.seed_seconds, self.compiling()
        unknown = self.prober.unknown(configs)
        return [
            a_trial + _SEEDS_OF_A_TRIAL * a_seed * new + compiling(config["compile_mode"])
            for config, new in zip(configs, unknown, strict=True)
        ]

    def run_seconds(self) -> float:
        """Return the seconds of a baseline process, from its request to its outcome."""
        return self.study.notes.run_seconds or 0.0

    def conclusion_seconds(self) -> float:
        """Estimate the seconds after the trials, as `candidate_seconds` does.

        Without a candidate, they are at most a third of the budget.
        """
        end = self.candidate_seconds() if self.study.finished() else 0.0
        if self.candidate is not None:
            return end
        return min(end, _MOST_UNCLAIMED * (self.clock.seconds or math.inf))

    def candidate_seconds(self) -> float:
        """Estimate the seconds of a candidate: its rounds, missing seeds, limits.

        Without a candidate, they are those that one may need. As long as trials are missing, its
        rounds need no others that lack some of its settings.
        """
        one = self.candidate or self._best
        training = "" if one is None else self.prober.training_of(one.config)
        seeds = self.seeds_seconds(one, self.prober.seeds_to_expect(training))
        end = self.rounds_seconds(one) + seeds + LIMITS_SECONDS
        if self.missing_trials:
            return end
        trials = sum(map(trial_seconds, self.study.finished()[1:]))
        budget = self.clock.seconds or math.inf
        return end + min(_LACKING_OF_TRIALS * trials, _LACKING_OF_BUDGET * budget)

    def seconds_again(self, trial: FinishedTrial) -> float:
        """Estimate the seconds of timing a trial once more, with its compiled code in the cache.

        An earlier trial may have filled the cache for it, too.
        """
        earlier = (one for one in self.study.finished() if one.number < trial.number)
        if any(compiles_alike(one.config, trial.config) for one in earlier):
            return trial_seconds(trial)
        run = trial.details.measurement
        if run is None:
            return trial_seconds(trial)
        longest = max(run.warmup_step_seconds, default=0.0) - run.compile_seconds
        once = longest if longest > self.run_seconds() else 0.0  # files read, kernels chosen
        return trial_seconds(trial) - saved_by_cache(run.compile_seconds) - once

    def rounds_seconds(self, trial: FinishedTrial | None) -> float:
        """Return the seconds of the rounds that a trial wins, if it is as much faster as it seems.

        None is a trial to come. As long as trials are missing, the fewest rounds count.
        """
        return self._rounds(trial) * self._round_seconds(trial)

    def _rounds(self, trial: FinishedTrial | None) -> int:
        gain = -math.inf if trial is None else self.gain(trial)
        if gain == -math.inf or self.missing_trials:
            return ROUND_COUNTS[0]
        return rounds_to_win(gain, max(_LEAST_NOISE, self.noise))

    def seconds_without(self, trial: FinishedTrial, config: TrainingConfig) -> float:
        """Return the seconds of timing `config` in the rounds that a trial wins.

        It lacks settings of the trial: it may be as slow as the baseline, or compile other code.
        """
        each = max(self.run_seconds(), self.seconds_again(trial))
        is_compiled = any(compiles_alike(one.config, config) for one in self.study.finished())
        compiling = 0.0 if is_compiled else self.compiling()(config["compile_mode"])
        return self._rounds(trial) * each + compiling

    def seeds_seconds(self, trial: FinishedTrial | None, least: int = 0) -> float:
        """Return the seconds of the seeds that a trial and the baseline lack for the next test.

        Args:
            trial: the trial; None is one to come, of whose training no seed is known.
            least: the fewest seeds of each to count, unless the training is decided.
        """
        if not needs_accuracy(self.context):
            return 0.0
        training = "" if trial is None else self.prober.training_of(trial.config)
        return self.prober.missing_seconds(training, least)

    def compiling(self) -> Callable[[Value], float]:
        """Return a function that estimates the seconds to compile in a mode; 0 for eager training.

        The longest compilation in this mode counts. A mode without one gets its assumed seconds,
        scaled by the median ratio of measured to assumed seconds of the other modes.
        """
        tensors = self.context.facts.model_tensors
        seen: dict[Value, float] = {}
        for trial in self.study.finished():
            mode = trial.config["compile_mode"]
            if mode is not None and not trial.details.foreseen:
                run = trial.details.measurement
                # A failed compilation would have taken longer.
                failed = max(_assumed(mode, tensors), trial.details.seconds or 0.0)
                took = failed if run is None else run.compile_seconds
                seen[mode] = max(took, seen.get(mode, 0.0))
        scale = median([took / _assumed(mode, tensors) for mode, took in seen.items()] or [1.0])

        def seconds(mode: Value) -> float:
            return 0.0 if mode is None else seen.get(mode, scale * _assumed(mode, tensors))

        return seconds

    @property
    def _baseline(self) -> FinishedTrial:
        return self.study.finished()[0]

    @cached_property
    def _best(self) -> FinishedTrial | None:
        """The incumbent; None while that is the baseline."""
        best = best_feasible(self.study.finished())
        return None if best is None or best.number == self._baseline.number else best

    def _round_seconds(self, trial: FinishedTrial | None) -> float:
        """Return the seconds of a round, in which the baseline and a trial are timed."""
        reference = self._baseline.details.measurement
        if trial is None:
            return round_seconds(self.context, reference, self.run_seconds())
        tried = trial.details.measurement
        both = in_a_round(reference, self.run_seconds(), tried.warmup_samples if tried else 0)
        warmup = reference.warmup_samples if reference else 0
        both += in_a_round(tried, self.seconds_again(trial), warmup)
        if environ_of(trial.config):
            # With environment variables to set, neither is forked from a host with the dataset.
            return both + 2 * (self.context.start_seconds + self.context.dataset_seconds)
        return both + round_host_seconds(self.context)

    @property
    def noise(self) -> float:
        """Deviation of the log rate between baseline processes; 0 with fewer than two."""
        rates = [math.log(run.samples_per_second) for run in self.study.notes.baseline_runs or ()]
        return stdev(rates) if len(rates) > 1 else 0.0


def needs_accuracy(context: SearchContext) -> bool:
    """Return whether configurations may train worse, and seeds can show it."""
    space = context.space
    exact = all(space.effect(name) == "exact" for name in space.varied())
    return not exact and context.judge.has_quality


def _assumed(mode: Value, tensors: int) -> float:
    """Return the seconds to compile a model of so many parameter tensors; 0 tensors if unknown."""
    usual = _COMPILE_SECONDS.get(mode, _LONGEST_KNOWN)
    return usual * (1 + tensors / _USUAL_TENSORS) / 2 if tensors else usual
