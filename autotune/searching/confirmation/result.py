"""The content of best.yaml, with its evidence, from a confirmed candidate or the baseline."""

from __future__ import annotations

import math
import os
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import accumulate, combinations
from statistics import fmean, median

from autotune import __version__
from autotune.accuracy.accuracy_verdict import SEEDS, AccuracyProber
from autotune.comparison.race import Without, settings_to_change
from autotune.comparison.rounds import PairedComparison, Participant
from autotune.configuration import best_config
from autotune.configuration import evidence as parts
from autotune.configuration.constraints import AccuracyRule, fixed_seconds
from autotune.configuration.job import CountFlops
from autotune.configuration.mismatch import DIGITS, sha256_of
from autotune.configuration.training_config import TrainingConfig
from autotune.context.search_context import SearchContext
from autotune.context.workload import own_files
from autotune.knobs.own import variables_set
from autotune.searching.run.coverage import searched_part
from autotune.searching.run.diagnosis import noted_diagnosis
from autotune.searching.run.time_budget import compiles_alike
from autotune.study.facts import FinishedTrial
from autotune.study.storage import masked
from autotune.values.measurement import Measurement, rate_of, together, uneven_text
from autotune.values.outcome import CountedFlops, Failure, Gated
from autotune.values.statistics import Interval, ratio_interval, ratio_of
from autotune.values.text import readable

_HOUR = 3600
# Growth that takes longer than this to reach the limit is not reported, unless the run is longer.
_LONGEST_SECONDS = 72 * _HOUR
_FEWEST_BLOCKS, _FEWEST_RUNS = 6, 3
# Bytes; pages that workers touch for the first time are fewer.
_LEAST_GROWTH = 128 << 10
# Share of the processes in which memory has to grow.
_MOST_RUNS = 0.75
# Share of the pairs of blocks in which the later one has to hold more.
_MOST_PAIRS = 0.95
# Growth that is over in the second half of the blocks was the end of a warm-up.
_GOES_ON = 0.7

Point = tuple[float, float]


@dataclass(frozen=True)
class ColdCosts:
    """The highest measured start costs: those of the process that had to compile."""

    trials: Sequence[FinishedTrial]
    """Finished trials, the baseline first."""
    baseline_runs: Sequence[Measurement]

    def compile_seconds(self, config: TrainingConfig) -> float:
        """Return the seconds of torch.compile with an empty cache; 0 if nothing compiled."""
        return self._highest(config, lambda run: run.compile_seconds)

    def fixed_seconds(self, config: TrainingConfig, run: Measurement) -> float:
        """Return the seconds that a run pays once.

        They are the start of the process of `run` and the compilation of the first such process.
        """
        return fixed_seconds(run, self._highest(config, lambda run: run.one_time_seconds))

    def _highest(self, config: TrainingConfig, seconds: Callable[[Measurement], float]) -> float:
        alike = [trial for trial in self.trials if compiles_alike(trial.config, config)]
        runs = [trial.details.measurement for trial in alike]
        if any(trial is self.trials[0] for trial in alike):
            runs += self.baseline_runs
        return max((seconds(run) for run in runs if run and run.compile_seconds), default=0.0)


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The result of a search with its evidence: a confirmed candidate or the baseline."""

    trial: FinishedTrial
    baseline_runs: tuple[Measurement, ...]
    runs: tuple[Measurement, ...]
    qualities: tuple[float, ...]
    speedup: best_config.Speedup
    comparison: PairedComparison | None = None
    """The rounds that it won; None if the baseline's settings are kept."""
    failed: tuple[tuple[FinishedTrial, str], ...] = ()
    """Candidates that could not be probed or timed again, each with the reason."""
    gains: tuple[parts.Gain, ...] = ()
    """Gains of the settings without which it was timed."""
    taken_back: parts.Gain | None = None
    """Gain of the settings that were removed because they did not pay."""


def confirmed_by(
    comparison: PairedComparison, trial: FinishedTrial, qualities: tuple[float, ...]
) -> Confirmed:
    """Return the result of a search from a paired comparison that the candidate won."""
    speedup = best_config.Speedup(
        ratio=round(comparison.ratio, 4),
        ci95=_rounded(comparison.interval),
        rounds=len(comparison.ratios),
        disturbed_rounds=comparison.disturbed,
        repeated_rounds=len(comparison.repeated),
    )
    runs = comparison.baseline, comparison.candidate
    return Confirmed(trial, *runs, qualities, speedup, comparison)


def gain_of(tested: Participant, one: Participant, lacking: Without) -> parts.Gain:
    """Return what the settings give that `one` lacks and the tested candidate has."""
    settings = settings_to_change(tested.config, one.config)
    return parts.Gain(
        settings={name: tested.config[name] for name in settings},
        ratio=round(lacking.gain.ratio, 4),
        ci95=_rounded(lacking.gain.interval),
        rounds=len(lacking.gain.costs),
    )


def build_answer(
    prober: AccuracyProber, costs: ColdCosts, won: Confirmed
) -> best_config.BestConfig:
    """Build the content of best.yaml; counts the FLOPs of a step on the way."""
    context, machine = prober.context, prober.context.machine
    rate = context.traits.script.rate
    answer = best_config.BestConfig(
        config=won.trial.config.as_dict(),
        evidence=_evidence(prober, costs, won),
        constraints=best_config.ConstraintEvidence(
            memory=memory_evidence(context, won.baseline_runs, won.runs),
            accuracy=accuracy_evidence(prober, won.trial.config, won.qualities),
        ),
        lr_scaling=parts.LearningRate(
            rule=context.options.workload.lr_scaling,
            factor=context.lr_factor(won.trial.config),
            flag=None if rate is None else rate.flag.name,
            value=None if rate is None else rate.value,
        ),
        processes=None if context.processes == 1 else context.processes,
        machine=parts.MachineRecord(
            device=machine.device_name if machine.has_accelerator else machine.device,
            cpu=machine.host.cpu_name or platform.machine(),
            cores=machine.host.usable_cores,
            memory_bytes=machine.memory_bytes,
            torch=machine.torch,
            python=machine.python,
            driver=machine.driver or None,
            fingerprint=machine.fingerprint,
        ),
        provenance=_provenance(context, won),
    )
    answer = answer.with_effects(context.space.effects)
    provenance = answer.provenance.model_copy(update=context.traits.digests(answer))
    return answer.model_copy(update={"provenance": provenance})


def _evidence(prober: AccuracyProber, costs: ColdCosts, won: Confirmed) -> best_config.Evidence:
    context = prober.context
    changed = won.trial.config.differences(context.baseline)
    rule = prober.rule
    return best_config.Evidence(
        objective=context.objective.name,
        unit=None if context.counts_samples else "steps",
        baseline=best_config.Baseline(
            config=context.baseline.as_dict(),
            phases=_phases(prober),
            **dict(_throughput(won.baseline_runs)),
        ),
        changed=changed,
        best=_throughput(won.runs),
        speedup=won.speedup,
        compile_seconds=round(costs.compile_seconds(won.trial.config), 3),
        break_even_samples=_break_even(context, costs, won),
        predicted_run=_predicted_run(context, costs, won),
        time_to_loss=_time_to_loss(prober, won) if context.objective.to_loss else None,
        blocks=_blocks(won),
        searched=searched_part(prober.study.notes.identity, prober.study.finished()),
        gains=won.gains or None,
        taken_back=won.taken_back,
        not_tried_without=_not_tried_without(won, context.baseline),
        not_proven=tuple(not_proven(prober, rule, won.trial)),
        not_read_back=tuple(variables_set(changed)) or None,
        not_confirmed=tuple(not_confirmed(won.trial, won.failed, context.baseline)),
        arithmetic=arithmetic_of(prober, won.trial.config, won.runs),
    )


def _not_tried_without(won: Confirmed, own: TrainingConfig) -> tuple[str, ...] | None:
    """Return the settings without which the result was not timed; None if there are none.

    The only setting of a result gives all of its speed-up.
    """
    names = settings_to_change(won.trial.config, own)
    tried = {name for gain in won.gains for name in gain.settings}
    left = tuple(name for name in names if name not in tried)
    return left if left and len(names) > 1 else None


def _phases(prober: AccuracyProber) -> parts.Phases | None:
    """Return the stages of the diagnosis; None if it failed or contradicts the training."""
    found = noted_diagnosis(prober.context, prober.study)
    if found is None or found.doubt:
        return None
    limits = {stage: round(rate, 1) for stage, rate in found.stage_limits().items()}
    share = found.stages.optimizer_seconds / found.stages.compute_seconds
    busy = None if found.busy_share is None else round(found.busy_share, 4)
    return parts.Phases(
        bottleneck=found.bound, busy_share=busy, optimizer_share=round(share, 4), **limits
    )


def _blocks(won: Confirmed) -> parts.Blocks:
    runs = {id(run): run for run in (*won.baseline_runs, *won.runs)}.values()
    disturbed = [run.disturbed_blocks for run in runs]
    watched = [count for count in disturbed if count is not None]
    return parts.Blocks(
        timed=sum(len(run.telling_blocks) for run in runs),
        disturbed=sum(watched) if len(watched) == len(disturbed) else None,
        gpu_held_back=_held_back(runs) or None,
    )


def _held_back(runs: Iterable[Measurement]) -> dict[str, int]:
    """Return the blocks in which something held the GPU's clock back, for each reason."""
    noises = [block.noise for run in runs for block in run.telling_blocks]
    capped = ["power limit" for noise in noises if noise.power_capped]
    slowed = [reason for noise in noises for reason in noise.gpu.split(", ") if noise.gpu]
    return dict(Counter([*capped, *(one for one in slowed if one != "other processes")]))


def _throughput(runs: Sequence[Measurement]) -> best_config.Throughput:
    """Return the mean throughput with its interval, see `rate_of`."""
    rate, (low, high) = rate_of(runs)
    return best_config.Throughput(
        samples_per_second=readable(rate),
        ci95=(readable(low), readable(high)),
        joules_per_sample=_median_of([run.joules_per_sample for run in runs]),
        steps=_steps(runs),
    )


def _steps(runs: Sequence[Measurement]) -> parts.Steps | None:
    found = together(run.steps for run in runs)
    if found is None:
        return None
    return parts.Steps(
        median_seconds=readable(found.median_seconds),
        p99_seconds=readable(found.p99_seconds),
        longest_seconds=readable(found.longest_seconds),
        remark=uneven_text(runs),
    )


def _median_of(told: Sequence[float | None]) -> float | None:
    """Return the median of the processes' values; None if one of them has none."""
    known = [number for number in told if number is not None]
    return readable(median(known)) if len(known) == len(told) else None


def _break_even(context: SearchContext, costs: ColdCosts, won: Confirmed) -> int | None:
    """Return the samples after which a slower start has paid for itself.

    They are the extra seconds of the start over the gain per sample; None if samples are the gain.
    """
    if context.objective.to_loss:
        return None
    gain = _seconds_per_sample(won.baseline_runs) - _seconds_per_sample(won.runs)
    if gain <= 0 or not won.speedup.rounds:
        return 0
    extra = _fixed_seconds(costs, won.trial.config, won.runs) - _fixed_seconds(
        costs, context.baseline, won.baseline_runs
    )
    return max(0, round(extra / gain))


def _predicted_run(
    context: SearchContext, costs: ColdCosts, won: Confirmed
) -> parts.PredictedRun | None:
    """Predict the seconds of the run that is the objective; None if throughput is."""
    samples = context.objective.run_samples
    if samples is None:
        return None

    def seconds(config: TrainingConfig, runs: Sequence[Measurement]) -> float:
        steady = samples * _seconds_per_sample(runs)
        return round(_fixed_seconds(costs, config, runs) + steady, 1)

    return parts.PredictedRun(
        samples=samples,
        baseline_seconds=seconds(context.baseline, won.baseline_runs),
        best_seconds=seconds(won.trial.config, won.runs),
    )


def _time_to_loss(prober: AccuracyProber, won: Confirmed) -> parts.TimeToLoss:
    loss, rounds = prober.loss_to_reach, won.comparison or PairedComparison(costs=((1.0, 1.0),))
    own = prober.samples_to_loss(prober.context.baseline)
    assert loss is not None
    fewer = [(new, old) for old, new in rounds.seeds_to_loss]
    samples = own * ratio_of(fewer) if fewer else own
    return parts.TimeToLoss(
        loss=readable(loss),
        baseline_samples=round(own),
        best_samples=round(samples),
        baseline_seconds=readable(own * _seconds_per_sample(won.baseline_runs)),
        best_seconds=readable(samples * _seconds_per_sample(won.runs)),
        seeds=len(fewer),
        samples_ci95=_rounded(ratio_interval(fewer)) if fewer else None,
        throughput_ci95=_rounded(ratio_interval(rounds.costs, rounds.confidence)),
    )


def _rounded(interval: Interval) -> Interval:
    return round(interval[0], 4), round(interval[1], 4)


def _seconds_per_sample(runs: Sequence[Measurement]) -> float:
    return fmean(run.seconds_per_sample for run in runs)


def _fixed_seconds(costs: ColdCosts, config: TrainingConfig, runs: Sequence[Measurement]) -> float:
    return median(costs.fixed_seconds(config, run) for run in runs)


def _provenance(context: SearchContext, won: Confirmed) -> best_config.Provenance:
    place, model = context.options.study, context.options.workload.model_path
    folder = model.resolve().parent
    files = own_files(context.options.workload, context.facts).items()
    imports = {os.path.relpath(path, folder): digest[:DIGITS] for path, digest in files}
    return best_config.Provenance(
        study=place.name,
        storage=masked(place.storage),
        trial=won.trial.number,
        model=str(model),
        model_sha256=sha256_of(model),
        imports=imports or None,
        maps=tuple(flag.text for flag in context.traits.script.flags) or None,
        autotune=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def not_proven(
    prober: AccuracyProber, rule: AccuracyRule, won: FinishedTrial
) -> list[parts.NotProven]:
    """Return the fastest trial of each undecided training that is faster than the result."""
    trials = [one for one in prober.study.finished() if _worth(one) > _worth(won)]
    trials.sort(key=_worth, reverse=True)
    found: dict[str, parts.NotProven] = {}
    for trial in trials:
        training = prober.training_of(trial.config)
        # The time may have ended before the baseline had the last seeds, too.
        qualities = prober.known(trial.config)[: len(rule.baseline)]
        if training in found or len(qualities) < len(SEEDS):
            continue
        if prober.decision_so_far(training) == "undecided":
            bound = rule.bound(qualities)
            found[training] = parts.NotProven(
                trial=trial.number,
                changed=trial.config.differences(prober.context.baseline),
                quality=readable(fmean(qualities)),
                bound=None if bound is None else readable(bound),
                limit=readable(rule.limit(len(qualities))),
                seeds=len(qualities),
            )
    return list(found.values())


def not_confirmed(
    won: FinishedTrial, failed: Iterable[tuple[FinishedTrial, str]], baseline: TrainingConfig
) -> list[parts.NotConfirmed]:
    """Return the failed candidates whose trials were faster than that of the result."""
    return [
        parts.NotConfirmed(
            trial=one.number, changed=one.config.differences(baseline), reason=reason
        )
        for one, reason in failed
        if (one.verdict.value or -math.inf) > (won.verdict.value or -math.inf)
    ]


def _worth(trial: FinishedTrial) -> float:
    """Return a trial's worth by the objective; minus infinity if another limit refuses it."""
    margins, value = trial.verdict.margins, trial.verdict.value
    others = (margin for name, margin in margins.items() if name != "accuracy")
    return -math.inf if value is None or any(one > 0 for one in others) else value


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
    """Return how fast the memory in use grows: the median of the processes; None if unsteadily.

    Growth is a leak, or a cache that fills. A process is timed for a second or two, in which what
    starts and warms up grows, too. So it counts only in nearly all processes, and steadily.
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
