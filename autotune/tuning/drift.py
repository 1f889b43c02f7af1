"""How fast the machine is now, compared with when the baseline was measured.

Trials are minutes apart, and a laptop that grows warm or a neighbour who moves in would make late
trials look bad. So the baseline is measured again every few trials, and a trial's value is what it
would have been when the search began. The answer does not rest on it: confirmation is paired.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from autotune.job import Measure, MeasurePlan
from autotune.outcome import Measured
from autotune.tuning.reserve import trial_seconds
from autotune.tuning.session import Session
from autotune.tuning.storing.own_runs import noted_runs

EVERY = 4
"""Trials, at least, between two measurements of the baseline."""
_SHARE = 1 / 8
"""Of the trials' seconds, at most, goes into that."""
# Less than this is taken for noise and not corrected: correcting noise would only add to it.
_LEAST = 0.03
_NOTE = "anchors"
_PLAN = MeasurePlan(looks=(6,))


def drift_now(session: Session, resumed: bool = False) -> float:
    """Speed of the machine now over its speed at the start; 1 while it is about the same.

    Measures the baseline where it is due, and when a search is `resumed`, which takes one more
    process. What is known stays known where that fails.
    """
    anchors = session.study.noted(_NOTE + session.worker, [])
    told = len(session.study.finished())
    if resumed or _is_due(session, anchors[-1]["trials"] if anchors else 1):
        last = anchors[-1]["samples_per_second"] if anchors else 0.0
        rate = _measure(session, told) or last
        anchors = [*anchors, {"trials": told, "samples_per_second": rate}]
        session.study.note(_NOTE + session.worker, anchors)
    runs = noted_runs(session.study)
    if not anchors or not runs:
        return 1.0
    return drift([run.samples_per_second for run in runs], anchors[-1]["samples_per_second"])


def _is_due(session: Session, told: int) -> bool:
    """Whether trials enough, and long enough, came after so many."""
    since = session.study.finished()[told:]
    seconds = sum(map(trial_seconds, since))
    return len(since) >= EVERY and _SHARE * seconds >= trial_seconds(session.baseline)


def drift(first: Sequence[float], now: float) -> float:
    """The ratio of a rate to the first ones, where it exceeds their own spread."""
    if not now:
        return 1.0
    ratio = now / median(first)
    spread = math.log(max(first) / min(first))
    return ratio if abs(math.log(ratio)) > max(_LEAST, spread) else 1.0


def conditions(details: Mapping[str, Any]) -> list[str]:
    """What a reader of a trial's rate has to know of when it was timed; mostly nothing."""
    disturbed, speed = details.get("disturbed_blocks"), details.get("machine_speed") or 1.0
    notes = [f"machine at {100 * speed:.0f} % of its first speed"] if speed != 1.0 else []
    return [*notes, f"{disturbed} blocks disturbed by other programs"] if disturbed else notes


def _measure(session: Session, told: int) -> float:
    """Samples per second of the baseline; 0 where it cannot be told."""
    job = session.scene.job(Measure(_PLAN), session.scene.baseline)
    outcome = session.runner.run(job, session.folder("anchors", f"{told:04d}"))
    return outcome.measurement.samples_per_second if isinstance(outcome, Measured) else 0.0
