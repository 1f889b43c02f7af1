"""Plan and deadline of a trial's timing: as long as the comparison needs, and no longer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median, stdev

from autotune.accuracy.accuracy_verdict import AccuracyProber, seed_seconds
from autotune.configuration.job import MeasurePlan
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.base import Value
from autotune.searching.run.search_run import SearchRun
from autotune.searching.run.time_budget import trial_seconds
from autotune.study.finished import best_feasible
from autotune.values.measurement import together

# A trial may take this multiple of the baseline's seconds. A compilation may take a multiple of
# its expected seconds on top, and without a time budget at least the allowance below.
_SLOWER_THAN_BASELINE = 6
_LEAST_DEADLINE_SECONDS = 60.0
_LEAST_OF_BUDGET, _LEAST_SHARE = 20.0, 1 / 10
_SLOWER_TO_COMPILE = 4
_COMPILE_ALLOWANCE_SECONDS = 300.0
# The first step with cudnn_benchmark tries the kernels of every convolution. Measured on an H200
# with ResNet-50: 11 to 19 s, at most when libraries were read from disk as well.
_KERNELS_ALLOWANCE_SECONDS = 60.0
_BLOCK_SECONDS = 0.1
# A larger deviation means that a process was disturbed.
_MOST_APART = 0.1


def trial_plan(search: SearchRun, incumbent_seconds_per_sample: float | None = None) -> MeasurePlan:
    """Return the plan of a trial's timing.

    The precision is no finer than the noise between processes of the same settings. Blocks are
    short; more of them follow where the first few are not precise enough. A trial that is clearly
    slower than the incumbent is stopped early; None stops none.
    """
    usual = MeasurePlan()
    return replace(
        usual,
        block_seconds=_BLOCK_SECONDS,
        precision=max(usual.precision, spread_of_processes(search)),
        incumbent_seconds_per_sample=incumbent_seconds_per_sample,
        least_samples=least_samples(search),
    )


def least_samples(search: SearchRun) -> int:
    """Return the samples among which the baseline has enough of its rare slow steps, if it has any.

    It is 0 where its steps are even.
    """
    runs = search.study.notes.baseline_runs or ()
    steps = together(run.steps for run in runs)
    if steps is None or not steps.is_uneven:
        return 0
    samples = sum(block.samples for run in runs for block in run.blocks if not block.is_disturbed)
    return round(steps.steps_to_time * samples / steps.count)


def spread_of_processes(search: SearchRun) -> float:
    """Return the deviation of the log rate between baseline processes, at most 0.1.

    It is 0 with fewer than two processes.
    """
    runs = search.study.notes.baseline_runs or ()
    rates = [math.log(run.samples_per_second) for run in runs]
    return min(stdev(rates), _MOST_APART) if len(rates) > 1 else 0.0


def to_beat(search: SearchRun, machine_speed: float) -> float | None:
    """Return the seconds per sample to beat: the upper bound of the incumbent's interval.

    It is scaled to the machine's speed now. It is None without an incumbent, and for the time of a
    run, which a slower trial may win by a faster start.
    """
    best = best_feasible(search.study.finished())
    bounds = None if best is None else best.details.samples_per_second_ci95
    if best is None or bounds is None or search.context.objective.run_samples is not None:
        return None
    low = bounds[0] / (best.details.machine_speed or 1.0)
    return 1 / (low * machine_speed)


def deadline(search: SearchRun, config: TrainingConfig) -> float:
    """Return the seconds after which a trial of `config` is assumed to hang."""
    baseline_seconds = search.baseline.details.process_seconds or 0.0
    budget, least = search.context.time_budget_seconds, _LEAST_DEADLINE_SECONDS
    allowance = _SLOWER_TO_COMPILE * expected_compile_seconds(search, config["compile_mode"])
    if budget is not None:
        least = min(least, max(_LEAST_OF_BUDGET, _LEAST_SHARE * budget))
    elif allowance:
        allowance = max(_COMPILE_ALLOWANCE_SECONDS, allowance)
    if search.context.machine.has_accelerator and config["cudnn_benchmark"]:
        allowance += _KERNELS_ALLOWANCE_SECONDS
    # A process that cannot be forked builds its dataset itself.
    building = search.context.dataset_seconds
    seconds = max(least, _SLOWER_THAN_BASELINE * baseline_seconds) + allowance + building
    return float(min(seconds, search.context.options.budget.trial_timeout_seconds))


# Average number of seeds until a configuration of new training is refused or validated.
_SEEDS = 2
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
# Largest share of the seconds left for trials that compiling one may take.
_SHARE_TO_COMPILE = 1 / 4


def trial_cost(
    search: SearchRun, prober: AccuracyProber
) -> Callable[[Sequence[TrainingConfig]], list[float]]:
    """Return a function that estimates the seconds of a trial of each configuration."""

    def seconds_of(configs: Sequence[TrainingConfig]) -> list[float]:
        a_trial = median(map(trial_seconds, search.study.finished()))
        a_seed = seed_seconds(search.context, search.study)
        compiling = _compile_seconds(search)
        unknown = prober.unknown(configs)
        return [
            a_trial + _SEEDS * a_seed * new + compiling(config["compile_mode"])
            for config, new in zip(configs, unknown, strict=True)
        ]

    return seconds_of


def expected_compile_seconds(search: SearchRun, mode: Value) -> float:
    """Return the seconds that compiling in `mode` is expected to take; 0 for eager training.

    The longest compilation in this mode counts. A mode without one gets its assumed seconds, scaled
    by the median ratio of measured to assumed seconds of the other modes.
    """
    return _compile_seconds(search)(mode)


def skip_dear_modes(search: SearchRun) -> None:
    """Skip the compile modes that would take too much of the time left for trials.

    The baseline's own mode is never among them. Once nothing else is left to try, a mode may take
    all of that time.
    """
    search.study.skipped_modes = _modes_beyond(search, _SHARE_TO_COMPILE)
    if search.study.skipped_modes and search.study.exhausted():
        search.study.skipped_modes = _modes_beyond(search, 1.0)


def modes_put_off(search: SearchRun) -> list[str]:
    """Return the compile modes that were skipped before they were tried, each with the reason."""
    tried = {trial.config["compile_mode"] for trial in search.study.finished()}
    return [
        f"compile_mode={mode} for now: compiling is expected to take more than a quarter of the "
        "time left"
        for mode in sorted(map(str, search.study.skipped_modes - tried))
    ]


def _modes_beyond(search: SearchRun, share: float) -> frozenset[Value]:
    affordable = share * max(0.0, search.time_budget.seconds_left_with_candidate())
    compiling = _compile_seconds(search)
    modes = set(search.context.space.domains.get("compile_mode", ()))
    others = modes - {None, search.context.baseline["compile_mode"]}
    return frozenset(mode for mode in others if compiling(mode) > affordable)


def _compile_seconds(search: SearchRun) -> Callable[[Value], float]:
    tensors = search.context.facts.model_tensors
    seen: dict[Value, float] = {}
    for trial in search.study.finished():
        mode = trial.config["compile_mode"]
        if mode is not None and not trial.details.foreseen:
            took = trial.details.compile_seconds
            if took is None:  # a failed compilation would have taken longer
                took = max(_assumed(mode, tensors), trial.details.seconds or 0.0)
            seen[mode] = max(took, seen.get(mode, 0.0))
    scale = median([took / _assumed(mode, tensors) for mode, took in seen.items()] or [1.0])

    def seconds(mode: Value) -> float:
        return 0.0 if mode is None else seen.get(mode, scale * _assumed(mode, tensors))

    return seconds


def _assumed(mode: Value, tensors: int) -> float:
    """Return the assumed seconds for a model of so many parameter tensors; 0 if unknown."""
    usual = _COMPILE_SECONDS.get(mode, _LONGEST_KNOWN)
    return usual * (1 + tensors / _USUAL_TENSORS) / 2 if tensors else usual
