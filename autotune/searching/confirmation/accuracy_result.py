"""The accuracy in best.yaml: what judged it, the difference, and what that shows."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from autotune.accuracy.accuracy_verdict import SEEDS, AccuracyProber
from autotune.configuration.constraints import AccuracyRule
from autotune.configuration.evidence import AccuracyEvidence, GateEvidence
from autotune.configuration.training_config import TrainingConfig
from autotune.values.outcome import Gated
from autotune.values.text import readable


def accuracy_evidence(
    prober: AccuracyProber, config: TrainingConfig, qualities: Sequence[float]
) -> AccuracyEvidence:
    """Return the accuracy of a configuration from the quality that it had with each seed."""
    rule, tolerance = rule_for(prober, len(qualities)), prober.context.options.accuracy.tolerance
    untrained = prober.study.notes.untrained
    script = prober.context.options.workload.script
    difference, interval = rule.difference(qualities)
    was_trained = prober.needs_probe(config) and len(qualities) > 1
    words = tolerance.words(rule.metric, rule.baseline[: len(SEEDS)], untrained)
    trained, split_error = prober.training_equivalent(config), prober.split_error(config)
    evidence = prober.evidence(config)
    by_gradients = script is not None and evidence == "gate"
    return AccuracyEvidence(
        evidence=evidence,
        gate=_gate(prober.gated(config), script is not None, by_gradients),
        metric=rule.metric,
        baseline=readable(fmean(rule.baseline[: len(qualities)])),
        best=readable(fmean(qualities)),
        difference=_exact(difference),
        difference_ci90=(_exact(interval[0]), _exact(interval[1])) if was_trained else None,
        tolerance=readable(rule.tolerance),
        allowed=words + rule.floor_words(len(qualities)),
        margin=round(rule.margin(qualities), 6),
        samples=prober.samples,
        **_length_of(prober),
        smallest_shown=_exact((interval[1] - interval[0]) / 2) if was_trained else None,
        seeds=len(qualities),
        needs_full_run=_changes_course(prober, trained),
        split_error=None if split_error is None else float(f"{split_error:.3g}"),
        judged_by=_judged_by(prober, rule.baseline[: len(qualities)], by_gradients),
        unjudged=(script and script.name_a_metric) or None,
    )


def _judged_by(prober: AccuracyProber, baseline: Sequence[float], by_gradients: bool) -> str | None:
    """Return what judged a script, in words; None for a model.py and for exact settings alone."""
    script = prober.context.options.workload.script
    if script is None or not (script.tries_numerics or script.compares_gradients):
        return None
    if script.compares_gradients or by_gradients:
        return "gradients of the first steps, and how far these move the weights"
    length = f"{prober.samples} {prober.context.unit}"
    what = f"mean training loss over the last tenth of {length}"
    if script.loss is None:
        what = f"--metric-regex, after {length}"
    are_equal = len(baseline) > 1 and len(set(baseline)) == 1
    return f"{what}; it printed the same with {len(baseline)} seeds" if are_equal else what


def _changes_course(prober: AccuracyProber, config: TrainingConfig) -> bool:
    """Return whether a knob that changes the course of training differs from the user's settings.

    A baseline in place of settings that exceed the memory limit has other batches, and nothing can
    compare their gradients.
    """
    context = prober.context
    changed = config.differences(context.baseline)
    is_replaced = prober.study.notes.reference is not None
    return is_replaced or any(context.space.effect(name) == "statistics" for name in changed)


def _exact(difference: float) -> float:
    """Return a difference of qualities without what float64 leaves of equal ones."""
    return readable(round(difference, 12))


def rule_for(prober: AccuracyProber, seeds: int) -> AccuracyRule:
    """Return the rule that so many seeds were judged by, which are known of the baseline too."""
    rule = prober.rule(seeds)
    assert isinstance(rule, AccuracyRule), "as many seeds of the baseline are known"
    return rule


def _length_of(prober: AccuracyProber) -> dict[str, Any]:
    """Return the samples of a probe in epochs and as a share of the run, where these are known."""
    context = prober.context
    whole = {"epochs": context.facts.dataset_samples, "share_of_run": context.objective.run_samples}
    return {name: float(f"{prober.samples / n:.3g}") for name, n in whole.items() if n}


def _gate(gated: Gated | None, is_script: bool, by_gradients: bool) -> GateEvidence | None:
    if gated is None:
        return None
    names = ["loss_error"] if is_script else list(GateEvidence.model_fields)
    names += ["gradient_error"] if by_gradients else []
    errors = {name: getattr(gated, name) for name in names}
    return GateEvidence(
        **{name: float(f"{error:.3g}") for name, error in errors.items() if error is not None}
    )
