"""Drift checks: the speed of the machine now, relative to its speed at the search's beginning.

A laptop that grows warm, or another program, would make late trials look slow. The baseline is
therefore timed again every few trials, and the values of trials are corrected by the ratio. The
confirmation does not rest on the correction, because it is paired.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from autotune.configuration.job import Measure, MeasurePlan
from autotune.searching.run.search_run import SearchRun
from autotune.searching.run.time_budget import trial_seconds
from autotune.study.facts import OWN, DriftCheck, StudyFacts, TrialDetails
from autotune.values.measurement import disturbance_of
from autotune.values.outcome import Measured
from autotune.values.statistics import bounds

EVERY = 4
"""Fewest trials between two drift checks."""
SLOWED = 1.5
"""Ratio of two speeds of the machine beyond the noise of any two processes."""
_SHARE = 1 / 8
"""Largest share of the trials' seconds that drift checks may take."""
# A smaller drift, as a logarithm, is taken for noise: correcting noise would only add to it.
_LEAST = 0.03
# A smaller difference between the baseline's two rates is not worth a remark.
_LEAST_TOLD = 0.05
_PLAN = MeasurePlan(block_counts=(6,))


def drift_now(search: SearchRun, resumed: bool = False) -> float:
    """Return the machine's speed now over its speed at the start; 1 while it is about the same.

    The baseline is timed if a check is due, after enough trials that are long enough, or if the
    search was `resumed`. If that fails, the last known speed holds.
    """
    notes, device = search.study.notes, search.worker or OWN
    checks = notes.drift_checks.get(device, ())
    last = next(reversed(checks), None)
    finished = search.study.finished()
    since = finished[last.trials if last else 1 :]
    seconds = sum(map(trial_seconds, since))
    is_due = len(since) >= EVERY and _SHARE * seconds >= trial_seconds(search.baseline)
    if resumed or is_due:
        rate = _measure(search, len(finished)) or (last.samples_per_second if last else 0.0)
        last = DriftCheck(len(finished), rate)
        notes.drift_checks[device] = [*checks, last]
    runs = notes.baseline_runs
    if last is None or not runs:
        return 1.0
    return drift([run.samples_per_second for run in runs], last.samples_per_second)


def drift(first: Sequence[float], now: float) -> float:
    """Return the rate `now` over the median of the first rates; 1 within their spread."""
    if not now:
        return 1.0
    ratio = now / median(first)
    spread = math.log(max(first) / min(first))
    return ratio if abs(math.log(ratio)) > max(_LEAST, spread) else 1.0


def apart(first: Sequence[float], later: Sequence[float]) -> float:
    """Return the median of the later rates over that of the first; 1 within their noise.

    They differ beyond it if the intervals of both means of logarithms leave a gap. A single rate
    shows no noise, so nothing differs from it, nor from none.
    """
    if not (first and later):
        return 1.0
    (low, high), (lowest, highest) = (bounds(list(map(math.log, x))) for x in (first, later))
    return 1.0 if low <= highest and lowest <= high else median(later) / median(first)


def _rates(notes: StudyFacts) -> tuple[list[float], Sequence[float]]:
    """Return the baseline's rates before the trials, and in the confirmation."""
    later = () if notes.confirmation is None else notes.confirmation.baseline_rates
    return [run.samples_per_second for run in notes.baseline_runs or ()], later


def slowed_at_first(search: SearchRun) -> float:
    """Return how many times as fast the baseline ran in the rounds as before the trials.

    It is 1 where a check during the trials found about one of these speeds: then the trials were as
    slow as the baseline before them, or were corrected.
    """
    notes, told = search.study.notes, len(search.study.finished())
    both = _rates(notes)
    checks = notes.drift_checks.get(search.worker or OWN, ())
    is_known = any(
        abs(math.log(one.samples_per_second / median(rates))) < math.log(SLOWED)
        for one in checks
        for rates in both
        if rates and one.samples_per_second and one.trials < told
    )
    return 1.0 if is_known else apart(*both)


def baselines_apart(notes: StudyFacts) -> str | None:
    """Return a remark if the confirmation's baseline ran unlike that of the trials; else None."""
    first, later = _rates(notes)
    speed = apart(first, later)
    if abs(speed - 1) < _LEAST_TOLD:
        return None
    before, then = median(first), median(later)
    return (
        f"your baseline drifted {100 * abs(speed - 1):.0f} % during the search, from {before:.4g} "
        f"{notes.rate_unit} before the trials to {then:.4g} in the confirmation. Ratios of trials "
        "are off by that much; the confirmed speed-up is not affected"
    )


def conditions(details: TrialDetails) -> list[str]:
    """Return notes on how far a trial's timing can be compared; mostly none."""
    run = details.measurement
    if run is None:
        return []
    speed, disturbance = run.machine_speed, disturbance_of([run])
    notes = (
        f"the machine ran at {100 * speed:.0f} % of its first speed" if speed != 1.0 else "",
        f"while it was timed, {disturbance}" if disturbance else "",
        "not trained to the loss: its seconds to it are assumed" if details.assumed_samples else "",
    )
    return [note for note in notes if note]


def _measure(search: SearchRun, told: int) -> float:
    """Return the samples per second of the baseline now; 0 if timing fails, or is disturbed twice.

    What another program takes from it differs from what it takes from trials: a baseline on all
    cores may run at a hundredth of its speed beside one that a trial on one core does not notice.
    """
    job = search.context.job(Measure(_PLAN), search.context.baseline)
    for suffix in ("", "-repeated"):
        outcome = search.runner.run(job, search.folder("anchors", f"{told:04d}{suffix}"))
        if not isinstance(outcome, Measured):
            break
        if not disturbance_of([outcome.measurement]):
            return outcome.measurement.samples_per_second
        if search.clock.is_over:
            break
    return 0.0
