"""The content of best.yaml, from a confirmed candidate or the baseline."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from statistics import fmean, median
from typing import Any

from autotune import __version__
from autotune.accuracy.accuracy_verdict import AccuracyProber
from autotune.accuracy.seeds import SEEDS
from autotune.comparison.rounds import PairedComparison
from autotune.comparison.sequential_test import LOOKS
from autotune.configuration.accuracy_evidence import AccuracyEvidence, GateEvidence
from autotune.configuration.accuracy_rule import AccuracyRule
from autotune.configuration.best_config import (
    Baseline,
    BestConfig,
    Blocks,
    ConstraintEvidence,
    Evidence,
    LearningRate,
    MachineRecord,
    PredictedRun,
    Provenance,
    Speedup,
    Throughput,
)
from autotune.configuration.evidence_parts import DeviceMemoryEvidence, MemoryEvidence, Stages
from autotune.configuration.training_config import TrainingConfig
from autotune.context.search_context import SearchContext, sha256_of
from autotune.searching.confirmation.compile_costs import ColdCosts
from autotune.searching.confirmation.limits import time_limits
from autotune.searching.confirmation.not_proven import not_proven
from autotune.searching.run.diagnosis import noted_diagnosis
from autotune.searching.run.search_coverage import searched_part
from autotune.storage.database import masked
from autotune.storage.finished_trial import FinishedTrial
from autotune.values.measurement import Measurement
from autotune.values.outcome import Gated
from autotune.values.statistics import median_interval
from autotune.values.text import readable


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The result of a search with its evidence: a confirmed candidate or the baseline."""

    trial: FinishedTrial
    baseline_runs: tuple[Measurement, ...]
    runs: tuple[Measurement, ...]
    qualities: tuple[float, ...]
    speedup: Speedup


def confirmed_by(
    comparison: PairedComparison, trial: FinishedTrial, qualities: tuple[float, ...]
) -> Confirmed:
    """Return the result of a search from a paired comparison that the candidate won."""
    low, high = (round(bound, 4) for bound in comparison.interval)
    speedup = Speedup(
        ratio=round(comparison.ratio, 4),
        ci95=(low, high),
        rounds=len(comparison.ratios),
        disturbed_rounds=comparison.disturbed,
        repeated_rounds=len(comparison.repeated),
    )
    return Confirmed(trial, comparison.baseline, comparison.candidate, qualities, speedup)


def keep_baseline(
    trial: FinishedTrial, runs: tuple[Measurement, ...], qualities: tuple[float, ...]
) -> Confirmed:
    """Return the result for the case that nothing beat the baseline, with a speed-up of 1."""
    return Confirmed(trial, runs, runs, qualities, Speedup(ratio=1.0, ci95=(1.0, 1.0), rounds=0))


def build_answer(prober: AccuracyProber, costs: ColdCosts, won: Confirmed) -> BestConfig:
    """Build the content of best.yaml; times loading and computing alone on the way."""
    context = prober.context
    answer = BestConfig(
        config=won.trial.config.as_dict(),
        evidence=_evidence(prober, costs, won),
        constraints=ConstraintEvidence(
            memory=_memory(context, won.runs),
            accuracy=_accuracy(prober, won),
        ),
        lr_scaling=LearningRate(
            rule=context.options.workload.lr_scaling, factor=context.lr_factor(won.trial.config)
        ),
        machine=_machine(context),
        provenance=_provenance(context, won),
    )
    return answer.with_effects(context.space.effects)


def _evidence(prober: AccuracyProber, costs: ColdCosts, won: Confirmed) -> Evidence:
    context = prober.context
    baseline = _throughput(won.baseline_runs)
    return Evidence(
        objective=context.objective.name,
        unit=None if context.counts_samples else "steps",
        baseline=Baseline(
            config=context.baseline.as_dict(),
            samples_per_second=baseline.samples_per_second,
            ci95=baseline.ci95,
            tokens_per_second=baseline.tokens_per_second,
            joules_per_sample=baseline.joules_per_sample,
            stages=_stages(prober),
        ),
        best=_throughput(won.runs),
        speedup=won.speedup,
        compile_seconds=round(costs.compile_seconds(won.trial.config), 3),
        break_even_samples=_break_even(context, costs, won),
        predicted_run=_predicted_run(context, costs, won),
        blocks=_blocks(won),
        searched=searched_part(prober.study.notes.identity, prober.study.finished()),
        not_proven=tuple(not_proven(prober, _rule(prober, won), won.trial)),
        limits=time_limits(prober, won.trial.config, won.runs),
    )


def _stages(prober: AccuracyProber) -> Stages | None:
    """Return the stages of the diagnosis; None if it failed or contradicts the training."""
    found = noted_diagnosis(prober.context, prober.study)
    if found is None or found.doubt:
        return None
    limits = {stage: round(rate, 1) for stage, rate in found.stage_limits().items()}
    share = found.stages.optimizer_seconds / found.stages.compute_seconds
    busy = None if found.busy_share is None else round(found.busy_share, 4)
    return Stages(bound=found.bound, busy_share=busy, optimizer_share=round(share, 4), **limits)


def _blocks(won: Confirmed) -> Blocks:
    runs = {id(run): run for run in (*won.baseline_runs, *won.runs)}.values()
    disturbed = [run.disturbed_blocks for run in runs]
    watched = [count for count in disturbed if count is not None]
    return Blocks(
        timed=sum(len(run.telling_blocks) for run in runs),
        disturbed=sum(watched) if len(watched) == len(disturbed) else None,
        gpu_clock_mhz=_clocks(won),
        gpu_held_back=_held_back(runs) or None,
    )


def _held_back(runs: Iterable[Measurement]) -> dict[str, int]:
    """Return the blocks in which something held the GPU's clock back, for each reason."""
    noises = [block.noise for run in runs for block in run.telling_blocks]
    capped = ["power limit" for noise in noises if noise.power_capped]
    slowed = [reason for noise in noises for reason in noise.gpu.split(", ") if noise.gpu]
    return dict(Counter([*capped, *(one for one in slowed if one != "other processes")]))


def _clocks(won: Confirmed) -> tuple[float, float] | None:
    """Return the median clocks of the GPU of both sides; None unless both were told."""
    own, best = (
        [
            float(block.noise.clock_mhz)
            for run in runs
            for block in run.telling_blocks
            if block.noise.clock_mhz is not None
        ]
        for runs in (won.baseline_runs, won.runs)
    )
    return (median(own), median(best)) if own and best else None


def _throughput(runs: Sequence[Measurement]) -> Throughput:
    """Return the median throughput, with an interval over six processes or more.

    With fewer processes, the interval is over all their blocks.
    """
    rates = [run.samples_per_second for run in runs]
    if len(runs) < LOOKS[0]:
        rates = [rate for run in runs for rate in run.block_rates]
    low, high = median_interval(rates)
    middle = median(run.samples_per_second for run in runs)
    return Throughput(
        samples_per_second=round(middle, 1),
        ci95=(round(low, 1), round(high, 1)),
        tokens_per_second=_median_of([run.tokens_per_second for run in runs]),
        joules_per_sample=_median_of([run.joules_per_sample for run in runs]),
    )


def _median_of(told: Sequence[float | None]) -> float | None:
    """Return the median of what the processes told; None if one of them told nothing."""
    known = [number for number in told if number is not None]
    return readable(median(known)) if len(known) == len(told) else None


def _break_even(context: SearchContext, costs: ColdCosts, won: Confirmed) -> int:
    """Return the samples after which a slower start has paid for itself.

    They are the extra seconds of the start over the gain in seconds per sample.
    """
    gain = _seconds_per_sample(won.baseline_runs) - _seconds_per_sample(won.runs)
    if gain <= 0 or not won.speedup.rounds:
        return 0
    extra = _fixed_seconds(costs, won.trial.config, won.runs) - _fixed_seconds(
        costs, context.baseline, won.baseline_runs
    )
    return max(0, round(extra / gain))


def _predicted_run(context: SearchContext, costs: ColdCosts, won: Confirmed) -> PredictedRun | None:
    """Predict the seconds of the run that is the objective; None if throughput is."""
    samples = context.objective.run_samples
    if samples is None:
        return None

    def seconds(config: TrainingConfig, runs: Sequence[Measurement]) -> float:
        steady = samples * _seconds_per_sample(runs)
        return round(_fixed_seconds(costs, config, runs) + steady, 1)

    return PredictedRun(
        samples=samples,
        baseline_seconds=seconds(context.baseline, won.baseline_runs),
        best_seconds=seconds(won.trial.config, won.runs),
    )


def _seconds_per_sample(runs: Sequence[Measurement]) -> float:
    return median(run.seconds_per_sample for run in runs)


def _fixed_seconds(costs: ColdCosts, config: TrainingConfig, runs: Sequence[Measurement]) -> float:
    return median(costs.fixed_seconds(config, run) for run in runs)


def _memory(context: SearchContext, runs: Sequence[Measurement]) -> MemoryEvidence:
    peak, limit = max(run.peak_memory_bytes for run in runs), context.memory_limit_bytes
    found = [run.longest_among for run in runs if run.longest_among is not None]
    among = min(found, key=lambda lengths: lengths.looked_at, default=None)
    return MemoryEvidence(
        peak_bytes=peak,
        limit_bytes=limit,
        margin=round(peak / limit - 1, 4),
        device=_device_memory(runs),
        longest_of=None if among is None else among.looked_at,
        dataset_samples=None if among is None else among.dataset,
    )


def _device_memory(runs: Sequence[Measurement]) -> DeviceMemoryEvidence | None:
    """Return the accelerator's memory in the process that left least of it free."""
    found = [run.device_memory for run in runs if run.device_memory is not None]
    if not found:
        return None
    return DeviceMemoryEvidence(**asdict(min(found, key=lambda memory: memory.free)))


def _accuracy(prober: AccuracyProber, won: Confirmed) -> AccuracyEvidence:
    rule, tolerance = _rule(prober, won), prober.context.options.accuracy.tolerance
    untrained = prober.study.notes.untrained
    config, seeds = won.trial.config, len(won.qualities)
    script = prober.context.options.workload.script
    difference, interval = rule.difference(won.qualities)
    was_trained = prober.needs_probe(config) and seeds > 1
    words = tolerance.words(rule.metric, rule.baseline[: len(SEEDS)], untrained)
    trained, split_error = prober.training_equivalent(config), prober.split_error(config)
    return AccuracyEvidence(
        evidence=prober.evidence(config),
        gate=_gate(prober.gated(config), script is not None),
        metric=rule.metric,
        baseline=readable(fmean(rule.baseline[:seeds])),
        best=readable(fmean(won.qualities)),
        difference=_exact(difference),
        difference_ci90=(_exact(interval[0]), _exact(interval[1])) if was_trained else None,
        tolerance=readable(rule.tolerance),
        allowed=words + rule.floor_words(seeds),
        margin=round(rule.margin(won.qualities), 6),
        samples=prober.samples,
        **_length_of(prober),
        smallest_shown=_exact((interval[1] - interval[0]) / 2) if was_trained else None,
        seeds=seeds,
        needs_full_run=_changes_course(prober.context, trained),
        split_error=None if split_error is None else float(f"{split_error:.3g}"),
        judged_by=_judged_by(prober, rule.baseline[:seeds]),
        unjudged=(script and script.name_a_metric) or None,
    )


def _judged_by(prober: AccuracyProber, baseline: Sequence[float]) -> str | None:
    """Return what judged a script, in words; None for a model.py and for exact settings alone."""
    script = prober.context.options.workload.script
    if script is None or not script.tries_numerics:
        return None
    samples, is_seeded = prober.samples, len(baseline) > 1 and len(set(baseline)) == 1
    what = f"mean training loss over the last tenth of {samples} samples"
    if script.loss is None:
        what = f"--metric-regex, after {samples} samples"
    return f"{what}; the script seeds itself, so all seeds are one" if is_seeded else what


def _changes_course(context: SearchContext, config: TrainingConfig) -> bool:
    """Return whether a knob that changes the course of training differs from the baseline's."""
    changed = config.differences(context.baseline)
    return any(context.space.effect(name) == "statistics" for name in changed)


def _exact(difference: float) -> float:
    """Return a difference of qualities without what float64 leaves of equal ones."""
    return readable(round(difference, 12))


def _rule(prober: AccuracyProber, won: Confirmed) -> AccuracyRule:
    rule = prober.rule(len(won.qualities))
    assert isinstance(rule, AccuracyRule), "as many seeds of the baseline are known"
    return rule


def _length_of(prober: AccuracyProber) -> dict[str, Any]:
    """Return the samples of a probe in epochs and as a share of the run, where these are known."""
    context = prober.context
    whole = {"epochs": context.facts.dataset_samples, "share_of_run": context.objective.run_samples}
    return {name: float(f"{prober.samples / n:.3g}") for name, n in whole.items() if n}


def _gate(gated: Gated | None, is_script: bool) -> GateEvidence | None:
    if gated is None:
        return None
    names = ["loss_error"] if is_script else list(GateEvidence.model_fields)
    errors = {name: getattr(gated, name) for name in names}
    return GateEvidence(
        **{name: float(f"{error:.3g}") for name, error in errors.items() if error is not None}
    )


def _machine(context: SearchContext) -> MachineRecord:
    machine = context.machine
    return MachineRecord(
        device=machine.device_name if machine.has_accelerator else machine.device,
        cpu=machine.host.cpu_name or platform.machine(),
        cores=machine.host.usable_cores,
        memory_bytes=machine.memory_bytes,
        torch=machine.torch,
        python=machine.python,
        driver=machine.driver or None,
        fingerprint=machine.fingerprint,
    )


def _provenance(context: SearchContext, won: Confirmed) -> Provenance:
    place, model = context.options.study, context.options.workload.model_path
    return Provenance(
        study=place.name,
        storage=masked(place.storage),
        trial=won.trial.number,
        model=str(model),
        model_sha256=sha256_of(model),
        autotune=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )
