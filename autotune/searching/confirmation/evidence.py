"""Evidence of a result: its memory, its accuracy, and its use of the device's arithmetic.

Growth of memory is a leak, or a cache that fills. A process is timed for a second or two, in which
what starts and warms up grows, too. So growth counts only if it is steady within a process, and
found in nearly all processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import accumulate, combinations
from statistics import fmean, median

from autotune.accuracy.accuracy_verdict import SEEDS, AccuracyProber
from autotune.configuration import evidence as parts
from autotune.configuration.job import CountFlops
from autotune.configuration.training_config import TrainingConfig
from autotune.context.search_context import SearchContext
from autotune.values.measurement import Measurement
from autotune.values.outcome import CountedFlops, Failure, Gated
from autotune.values.text import readable

_HOUR = 3600
# Growth that takes longer than this to reach the limit is not reported, unless the run is longer.
_LONGEST_SECONDS = 72 * _HOUR
_FEWEST_BLOCKS, _FEWEST_RUNS = 6, 3
# Bytes; pages that workers touch for the first time are fewer.
_LEAST_GROWTH = 128 << 10
# Share of the processes in which memory has to grow.
_MOST_RUNS = 0.75
# Share of the pairs of blocks of which the later one has to hold more.
_MOST_PAIRS = 0.95
# Growth that is over in the second half of the blocks was the end of a warm-up.
_GOES_ON = 0.7

Point = tuple[float, float]


def memory_evidence(
    context: SearchContext, baseline_runs: Sequence[Measurement], runs: Sequence[Measurement]
) -> parts.MemoryEvidence:
    """Return the memory of a result that `runs` confirmed, with those of the baseline."""
    peak, limit = max(run.peak_memory_bytes for run in runs), context.memory_limit_bytes
    found = [run.longest_among for run in runs if run.longest_among is not None]
    among = min(found, key=lambda lengths: lengths.looked_at, default=None)
    slowest = max(run.seconds_per_sample for run in (*baseline_runs, *runs))
    seconds = max(_LONGEST_SECONDS, (context.objective.run_samples or 0) * slowest)
    least = (limit - peak) / seconds
    rates = (bytes_per_second(each) for each in (baseline_runs, runs))
    own, best = (None if r is None or r < least else readable(_HOUR * r) for r in rates)
    devices = [run.device_memory for run in runs if run.device_memory is not None]
    fullest = min(devices, key=lambda memory: memory.free, default=None)
    return parts.MemoryEvidence(
        peak_bytes=peak,
        limit_bytes=limit,
        margin=round(peak / limit - 1, 4),
        device=None if fullest is None else parts.DeviceMemoryEvidence(**asdict(fullest)),
        longest_of=None if among is None else among.looked_at,
        dataset_samples=None if among is None else among.dataset,
        growth_per_hour=parts.MemoryGrowth(baseline=own, best=best) if own or best else None,
    )


def bytes_per_second(runs: Sequence[Measurement]) -> float | None:
    """Return how fast the memory in use grows: the median of the processes.

    None if it does not grow steadily, or if too little is known.
    """
    slopes = [slope for run in runs if (slope := _slope(run)) is not None]
    growing = sum(slope > 0 for slope in slopes)
    if len(slopes) < _FEWEST_RUNS or growing < _MOST_RUNS * len(slopes):
        return None
    return median(slopes)


def _slope(run: Measurement) -> float | None:
    """Return the bytes per second by which one process grows; 0 if unsteadily, None if unknown."""
    used = [b.noise.memory_bytes for b in run.blocks if b.noise.memory_bytes is not None]
    if not _FEWEST_BLOCKS <= len(used) == len(run.blocks):
        return None
    points = list(zip(accumulate(block.seconds for block in run.blocks), used, strict=True))
    if used[-1] - used[0] < _LEAST_GROWTH:
        return 0.0
    rises = [later > earlier for earlier, later in combinations(used, 2)]
    if sum(rises) < _MOST_PAIRS * len(rises):
        return 0.0
    middle = len(points) // 2
    first, second = _theil_sen(points[: middle + 1]), _theil_sen(points[middle:])
    return _theil_sen(points) if second >= _GOES_ON * first else 0.0


def _theil_sen(points: Sequence[Point]) -> float:
    """Return the median slope of all pairs of points, which an outlier does not change."""
    return median((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2))


def accuracy_evidence(
    prober: AccuracyProber, config: TrainingConfig, qualities: Sequence[float]
) -> parts.AccuracyEvidence:
    """Return the accuracy of a configuration from the quality that it had with each seed."""
    rule, tolerance = prober.rule, prober.context.options.accuracy.tolerance
    untrained = prober.study.notes.untrained
    difference, interval = rule.difference(qualities)
    was_trained = prober.needs_probe(config) and len(qualities) > 1
    words = tolerance.words(rule.metric, rule.baseline[: len(SEEDS)], untrained)
    split_error = prober.numerics.split_error(config)
    context, evidence = prober.context, prober.evidence(config)
    changed = prober.numerics.trained_as(config).differences(context.baseline)
    whole = {"epochs": context.facts.dataset_samples, "share_of_run": context.objective.run_samples}
    lengths = {name: float(f"{prober.most_samples / n:.3g}") for name, n in whole.items() if n}
    measured = prober.numerics.measured
    by_gradients = evidence == "numerical check" and "gradient_error" not in measured
    return parts.AccuracyEvidence(
        evidence=evidence,
        numerical_check=_gate(prober.numerics.gated(config), measured, by_gradients),
        metric=rule.metric,
        baseline=readable(fmean(rule.baseline[: len(qualities)])),
        best=readable(fmean(qualities)),
        difference=_exact(difference),
        difference_ci90=(_exact(interval[0]), _exact(interval[1])) if was_trained else None,
        tolerance=readable(rule.tolerance),
        allowed=words + rule.floor_words(len(qualities)),
        margin=round(rule.margin(qualities), 6),
        samples=prober.most_samples,
        until_loss=context.objective.to_loss or None,
        **lengths,
        smallest_shown=_exact((interval[1] - interval[0]) / 2) if was_trained else None,
        seeds=len(qualities),
        needs_full_run=any(context.space.effect(name) == "statistics" for name in changed),
        split_error=None if split_error is None else float(f"{split_error:.3g}"),
        compared_by=_compared_by(prober, rule.baseline[: len(qualities)], by_gradients),
        not_compared=context.judge.name_a_metric or None,
    )


def _compared_by(
    prober: AccuracyProber, baseline: Sequence[float], by_gradients: bool
) -> str | None:
    """Return what a script was compared by, in words; None for a model.py and exact settings."""
    by = prober.context.judge.by
    if by not in ("gradients", "training_loss", "metric_regex"):
        return None
    if by == "gradients" or by_gradients:
        return "gradients of the first steps, and how far these move the weights"
    length = f"{prober.samples} {prober.context.unit}"
    what = f"mean training loss over the last tenth of {length}"
    if by == "metric_regex":
        what = f"--metric-regex, after {length}"
    are_equal = len(baseline) > 1 and len(set(baseline)) == 1
    return f"{what}; it printed the same with {len(baseline)} seeds" if are_equal else what


def _exact(difference: float) -> float:
    """Return a difference of qualities without the rounding error of float64."""
    return readable(round(difference, 12))


def _gate(
    gated: Gated | Failure | None, measured: Sequence[str], by_gradients: bool
) -> parts.GateEvidence | None:
    """Return the errors that a check found; None if there was none, or if it failed."""
    if not isinstance(gated, Gated):
        return None
    names = (*measured, "gradient_error") if by_gradients else measured
    errors = {name: getattr(gated, name) for name in names}
    return parts.GateEvidence(
        **{name: float(f"{error:.3g}") for name, error in errors.items() if error is not None}
    )


def arithmetic_of(
    prober: AccuracyProber, config: TrainingConfig, runs: Sequence[Measurement]
) -> parts.Arithmetic | None:
    """Count the arithmetic of a configuration; None for a script, or if it cannot be counted.

    Side effect: notes the machine's rate of matrix products in the study, if it was not known.
    `runs` are the processes behind the throughput that is stated for it.
    """
    context, notes = prober.context, prober.study.notes
    if not context.traits.counts_flops:
        return None
    machine = context.machine
    # Launchers of several processes leave each of them one thread.
    alone = context.processes == 1
    threads = machine.default_num_threads if alone else machine.host.usable_cores
    folder = context.options.study.folder / "trials" / "arithmetic"
    task = CountFlops(threads, tuple(notes.matmul_rates))
    found = prober.runner.run(context.job(task, config), folder)
    if not isinstance(found, CountedFlops) or found.number_format is None:
        return None
    if found.matmul_flops_per_second is not None:
        notes.matmul_rates[found.number_format] = found.matmul_flops_per_second
    rate = notes.matmul_rates.get(found.number_format)
    devices = context.processes if machine.has_accelerator else 1
    return used(found, runs, None if rate is None else devices * rate)


def used(
    found: CountedFlops, runs: Sequence[Measurement], matmul_flops_per_second: float | None
) -> parts.Arithmetic:
    """Return the use of the arithmetic.

    The rate of matrix products is that of all devices; None if not known.
    """
    rate, flops = median(run.samples_per_second for run in runs), found.flops_per_sample
    share = None
    if flops is not None and matmul_flops_per_second is not None:
        share = flops * rate / matmul_flops_per_second
    return parts.Arithmetic(
        flops_per_sample=flops,
        number_format=found.number_format,
        matmul_flops_per_second=matmul_flops_per_second,
        # A share above 1 contradicts the rate.
        mfu=None if share is None or share > 1 else float(f"{share:.3g}"),
    )
