"""Plan and deadline of a trial's timing: as long as the comparison needs, and no longer."""

from __future__ import annotations

from dataclasses import replace

from autotune.configuration.job import MeasurePlan
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.base import Value
from autotune.searching.run.coverage import is_worth_a_trial
from autotune.searching.run.search_run import SearchRun
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
    apart = min(search.time_budget.noise, _MOST_APART)
    return replace(
        usual,
        block_seconds=_BLOCK_SECONDS,
        precision=max(usual.precision, apart),
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


def to_beat(search: SearchRun, machine_speed: float) -> float | None:
    """Return the seconds per sample to beat: the upper bound of the incumbent's interval.

    It is scaled to the machine's speed now. It is None without an incumbent, and for a time, which
    a slower trial may win by a faster start, or by fewer samples to a loss.
    """
    best = best_feasible(search.study.finished())
    run = None if best is None else best.details.measurement
    if run is None or search.context.objective.name != "throughput":
        return None
    return run.machine_speed / (run.samples_per_second_interval[0] * machine_speed)


def deadline(search: SearchRun, config: TrainingConfig) -> float:
    """Return the seconds after which a trial of `config` is assumed to hang."""
    baseline_seconds = search.time_budget.run_seconds()
    budget, least = search.context.time_budget_seconds, _LEAST_DEADLINE_SECONDS
    allowance = _SLOWER_TO_COMPILE * search.time_budget.compiling()(config["compile_mode"])
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


# Largest share of the seconds left for trials that compiling one may take.
_SHARE_TO_COMPILE = 1 / 4


def skip_dear_modes(search: SearchRun) -> None:
    """Skip the compile modes that would take too much of the time left for trials.

    The baseline's own is never skipped. Once nothing else is worth a trial, one may take all of it.
    """
    search.study.skipped_modes = _modes_beyond(search, _SHARE_TO_COMPILE)
    if search.study.skipped_modes and not is_worth_a_trial(search):
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
    left = search.clock.left - search.time_budget.conclusion_seconds()
    affordable = share * max(0.0, left)
    compiling = search.time_budget.compiling()
    modes = set(search.context.space.domains.get("compile_mode", ()))
    others = modes - {None, search.context.baseline["compile_mode"]}
    return frozenset(mode for mode in others if compiling(mode) > affordable)
