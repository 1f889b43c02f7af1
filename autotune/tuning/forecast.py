"""How long a search will still take before its first trial has told how long one takes.

What is known by then: how long a process takes to be ready, for how long it times, and from the
first process of the baseline on what those have really taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from autotune.job import MeasurePlan
from autotune.tuning.confirming.confirm import LOOKS
from autotune.tuning.judging.accuracy import probe_seconds
from autotune.tuning.judging.seeds import SEEDS
from autotune.tuning.reserve import LIMITS_SECONDS
from autotune.tuning.session import Session

RUNS = 3
"""Processes of the baseline, because two runs of the same settings differ by more than their blocks
do."""
PLAN = MeasurePlan(max_seconds=1.5)
"""Of each: where six blocks are not fine enough, another process tells more than further blocks."""
_DIAGNOSIS_SECONDS = 5.0


def before_runs(session: Session, taken: Sequence[float]) -> float:
    """Seconds until the answer where these processes of the baseline are over."""
    host = 0.0 if taken else session.scene.start_seconds
    left = (RUNS - len(taken)) * _a_run(taken)
    return host + left + before_probes(session, taken)


def before_probes(session: Session, taken: Sequence[float]) -> float:
    """Seconds until the answer where the accuracy of the baseline is to be measured next."""
    a_seed = _proof_seconds(session) / len(SEEDS)
    return a_seed + session.scene.start_seconds + before_diagnosis(session, taken)


def before_diagnosis(session: Session, taken: Sequence[float]) -> float:
    """Seconds until the answer where the stages are to be timed next."""
    scene, each = session.scene, _a_run(taken)
    diagnosis = scene.start_seconds + _DIAGNOSIS_SECONDS
    a_round = scene.start_seconds + 2 * each
    # The baseline's further seeds belong to the answer's.
    conclusion = LOOKS[0] * a_round + 2 * _proof_seconds(session) + LIMITS_SECONDS
    trials = (min(scene.trials, scene.space.size) - 1) * (scene.start_seconds + each)
    if scene.time_budget_seconds is not None:
        rest = scene.time_budget_seconds - session.elapsed_seconds - diagnosis - conclusion
        trials = min(trials, max(0.0, rest))
    return diagnosis + trials + conclusion


def _a_run(taken: Sequence[float]) -> float:
    return median(taken) if taken else PLAN.max_seconds


def _proof_seconds(session: Session) -> float:
    """Of training on the first seeds; nothing where a script tells no quality."""
    script = session.scene.options.script
    silent = script is not None and script.metric is None
    return 0.0 if silent else len(SEEDS) * probe_seconds(session.scene)
