"""Trial cost: the expected seconds of a trial, with compiling and accuracy seeds.

The sampler divides expected improvement by a power of the cost. A compile mode that would take too
large a share of the remaining time is not tried at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from autotune.accuracy.accuracy_verdict import seed_seconds
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.base import Value
from autotune.searching.run.search_run import Accuracy, SearchRun
from autotune.searching.run.seconds import trial_seconds

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
    search: SearchRun, accuracy: Accuracy
) -> Callable[[Sequence[TrainingConfig]], list[float]]:
    """Return a function that estimates the seconds of a trial of each configuration."""

    def seconds_of(configs: Sequence[TrainingConfig]) -> list[float]:
        a_trial = median(map(trial_seconds, search.study.finished()))
        a_seed = seed_seconds(search.context, search.study)
        compiling = _compile_seconds(search)
        unknown = accuracy.prober.unknown(configs)
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
