"""The user's own settings: measured first, and the reference of every claim.

A baseline that fails ends the search.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median

from autotune.accuracy import accuracy_verdict
from autotune.comparison.rounds import Repeats
from autotune.configuration.constraints import UNNOTICED, AccuracyRule, judge
from autotune.configuration.evidence import UNCHANGED
from autotune.configuration.job import Measure, MeasurePlan
from autotune.context.budget_clock import OUT_OF_TIME
from autotune.searching.run import time_budget
from autotune.searching.run.coverage import SPARE, suggested
from autotune.searching.run.events import StepStarted
from autotune.searching.run.search_run import SearchRun, details_of
from autotune.searching.run.time_budget import RUNS
from autotune.study.facts import FinishedTrial
from autotune.values import errors
from autotune.values import outcome as outcomes
from autotune.values.measurement import Measurement, disturbance_of
from autotune.values.text import flag_of_seconds, readable, span

PLAN = MeasurePlan(max_seconds=1.5)
"""Plan of each baseline process, capped at 1.5 s: more processes help more than more blocks."""
Runs = tuple[Measurement, ...]
"""The baseline's processes."""
_MOST_NAMED = 3
_RESUMED = 1 / 2
"""Share of a training's gain by which a later run may begin lower by chance."""


def with_package_seconds(search: SearchRun, runs: Runs) -> SearchRun:
    """Return the search with the seconds for which hosts import the packages of a script.

    The observed run took so much longer to its first step than processes whose host had them.
    Anything that only a first run prepares, such as a cache, counts as packages as well.
    """
    seen, build = search.context.traits.seen, min(run.build_seconds for run in runs)
    packages = max(0.0, seen.start_seconds - seen.import_seconds - build)
    return replace(search, context=replace(search.context, package_seconds=packages))


def measure_reference(search: SearchRun) -> Generator[StepStarted, None, Runs | str]:
    """Time the user's settings in several fresh processes.

    Returns:
        The runs; or the reason why the settings are no feasible reference, as they exceed a limit.

    Raises:
        WorkloadError: the settings fail for another reason than memory or time.
        AutotuneError: a process was lost to a fault of the machine.
        NotSearchedEnoughError: the time budget is too short for a search.
    """
    known = search.study.notes.baseline_runs
    if known is not None:
        return known
    runs: list[Measurement] = []
    timed: list[Measurement] = []
    seconds: list[float] = []
    repeats: Repeats[Measurement] = Repeats(RUNS, lambda: not search.clock.is_over)
    repeated = ""
    while len(runs) < RUNS:
        yield StepStarted(f"process {len(runs) + 1} of {RUNS}{repeated}")
        folder = search.folder("0000", str(len(seconds)))
        job = search.context.job(Measure(PLAN), search.context.baseline)
        start = time.monotonic()
        outcome = search.runner.run(job, folder)
        seconds.append(time.monotonic() - start)
        if cut_by_budget(search, outcome):
            raise ran_out(search, "a process of your settings")
        if isinstance(outcome, outcomes.OutOfMemory):
            return f"{outcomes.describe(outcome)}; begin with a smaller batch"
        if isinstance(outcome, outcomes.TimedOut):
            return outcomes.describe(outcome)
        if isinstance(outcome, outcomes.Lost):
            raise errors.AutotuneError(
                f"The baseline run did not complete ({outcome.detail}). Rerun the command."
            )
        if not isinstance(outcome, outcomes.Measured):
            raise errors.WorkloadError(_own_settings_fail(search, outcome, folder))
        timed.append(outcome.measurement)
        if len(timed) <= 2:  # noqa: PLR2004
            check_plan(search, timed)
        seconds[-1] = max(seconds[-1], time_budget.process_seconds(outcome.measurement))
        disturbance = disturbance_of([outcome.measurement])
        counting = repeats.admit(search.comparable(outcome.measurement), disturbance)
        repeated = "" if counting else f", repeated: {disturbance}"
        runs += counting
    search.study.notes.run_seconds = round(median(seconds), 3)
    search.study.notes.baseline_runs = tuple(runs)
    return tuple(runs)


def first_rule(search: SearchRun, runs: Runs) -> AccuracyRule | str:
    """Measure the quality of the baseline, on which the accuracy rule rests.

    One seed is enough, or all of `SEEDS` where there is a minimum accuracy. Side effect: notes the
    samples of a probe, which stay as they are from then on.

    Returns:
        The rule; or the reason why the baseline is no feasible reference.

    Raises:
        WorkloadError: the probe fails for another reason than memory or time.
        UsageError: it does not reach the loss that was given as the objective.
        NotSearchedEnoughError: the time budget is too short for the probe.
    """
    prober, accuracy = search.prober, search.context.options.accuracy
    if search.context.judge.has_quality and not prober.samples:
        speed = median(run.samples_per_second for run in runs)
        search.study.notes.probe_samples = accuracy_verdict.probe_samples(search.context, speed)
    seeds = 1 if accuracy.minimum is None else len(accuracy_verdict.SEEDS)
    failure = prober.probe(search.context.baseline, seeds)
    if cut_by_budget(search, failure):
        is_printed = search.context.judge.by == "metric_regex"
        until = ", until the script prints what --metric-regex finds" if is_printed else ""
        raise ran_out(search, f"measuring the quality of your settings{until}")
    if isinstance(failure, outcomes.OutOfMemory | outcomes.TimedOut):
        return f"short training: {accuracy_verdict.why_unmeasured(failure)}"
    if failure is not None:
        raise accuracy_verdict.own_accuracy_fails(failure)
    _check_begins_anew(search, prober.rule)
    if prober.misses(search.context.baseline.quality_key()):
        raise errors.UsageError(
            f"--objective time-to-loss={prober.loss_to_reach:g}: your settings do not reach this "
            f"training loss in twice the {prober.samples} {search.context.unit} of a short "
            "training. Give a higher loss, or more --accuracy-samples."
        )
    return prober.rule


def _check_begins_anew(search: SearchRun, rule: AccuracyRule) -> None:
    """Check that a script's training does not continue where an earlier run of it ended.

    Its first losses, with the seed that it was observed with, are compared with those of that run.

    Raises:
        WorkloadError: they have fallen by half of what a training gains, or more.
    """
    loss, before = search.context.traits.seen.loss, search.study.notes.untrained
    if loss is None or not loss.first or before is None:
        return
    scale = loss.backwards_per_step if search.context.judge.loss == "sum" else 1.0
    own = scale * fmean(loss.first[: outcomes.FIRST_STEPS])
    if own - before > max(UNNOTICED * abs(own), _RESUMED * (own - rule.baseline[0])):
        raise errors.WorkloadError(
            f"{search.context.options.workload.model_path} resumes an earlier run: its first "
            f"losses were {own:.4g} in the profiling run and are {before:.4g} now. It seems to "
            "load its own checkpoint, so that trainings cannot be compared. Isolate its files in "
            "another study (--temp-workdir --study NAME), or pass arguments that make it start "
            "from scratch."
        )


def tell_baseline(search: SearchRun, runs: Runs, rule: AccuracyRule) -> FinishedTrial:
    """Add the baseline as the study's first trial, represented by its median run."""
    if search.study.finished():
        return search.baseline
    run = sorted(runs, key=lambda run: run.samples_per_second)[len(runs) // 2]
    context = search.context
    margin = rule.margin(rule.baseline)
    reason = rule.objection(rule.baseline)
    objective = search.objective_of(context.baseline)
    verdict = judge(outcomes.Measured(run), objective, context.memory_limit_bytes, margin, reason)
    details = replace(
        details_of(outcomes.Measured(run), sum(map(time_budget.process_seconds, runs))),
        training=context.baseline.quality_key(),
        timing_seconds=search.study.notes.run_seconds,
        quality=None if rule.metric == UNCHANGED else readable(fmean(rule.baseline)),
    )
    return search.study.add(context.baseline, verdict, details)


def _own_settings_fail(search: SearchRun, outcome: outcomes.TrialOutcome, folder: Path) -> str:
    written, in_the_way = search.context.traits.seen.surroundings.folders, ""
    if written and not search.context.options.workload.called.workdir:
        folders = ", ".join(written[:_MOST_NAMED])
        in_the_way = (
            f"The profiling run wrote to {folders}. If its files are in the way, remove them and "
            "use --temp-workdir.\n"
        )
    return (
        f"{search.context.options.workload.model_path} fails with your own settings: "
        f"{outcomes.describe(outcomes.as_failure(outcome))}\n"
        "A search compares with your settings, so they must work. Correct "
        f"{search.context.traits.settings_in}.\n"
        f"{in_the_way}Whole log: {folder / 'stderr.log'}"
    )


def costs_text(search: SearchRun, runs: Runs) -> str:
    """Return the seconds of a trial, a round and a seed, from the baseline's processes, as text."""
    context, each = search.context, search.time_budget.run_seconds()
    timing = min(each, median(map(time_budget.timed_seconds, runs)))
    dataset = 0.0 if context.is_dataset_shared else context.dataset_seconds
    parts = {"dataset": dataset} if dataset else {}
    parts |= {"start": max(0.0, each - timing - dataset), "timing": timing}
    told = ", ".join(f"{name} {seconds:.1f}" for name, seconds in parts.items())
    a_round = median(time_budget.round_seconds(context, run, each) for run in runs)
    text = f"a trial takes about {span(sum(parts.values()))} ({told})"
    text += f", a confirmation round {span(a_round)}"
    seed = search.study.notes.seed_seconds
    if seed is not None and context.judge.has_quality:
        text += f", a short training {span(seed)}"
    if context.is_dataset_shared:
        text += f"; the dataset is built once, in {context.dataset_seconds:.1f} s"
    return text


def check_plan(search: SearchRun, runs: Sequence[Measurement]) -> None:
    """Refuse a time budget that is too short for enough trials.

    The quickest process shows how long a trial takes. The first one refuses nothing if there
    is time for a second: it may have read libraries and data that are in memory from then on.

    Raises:
        NotSearchedEnoughError: the budget is too short for `needed_trials` and a confirmation.
    """
    wanted = time_budget.needed_trials(search.context)
    if search.study.finished() or wanted < 1:
        return
    run = min(runs, key=time_budget.process_seconds)
    least = time_budget.least_seconds(search.context, run, wanted)
    is_first_of_two = len(runs) == 1 and time_budget.process_seconds(run) <= search.clock.left
    if least <= search.clock.left or is_first_of_two:
        return
    enough = time_budget.enough_seconds(search.context, run, wanted)
    seconds = suggested(SPARE * (search.clock.elapsed + enough))
    each = span(time_budget.process_seconds(run))
    raise errors.NotSearchedEnoughError(
        f"not searched enough: a process of your settings takes {each}. The others, "
        f"{wanted} trial{'s' if wanted > 1 else ''} and the confirmation need about {span(least)}; "
        f"{span(max(0.0, search.clock.left))} of the time budget are left. "
        f"Use --time-budget {flag_of_seconds(seconds)} or more. best.yaml was not written.",
        measured=0,
        seconds=seconds,
    )


def cut_by_budget(search: SearchRun, outcome: object) -> bool:
    """Return whether a process ended for no other reason than the time budget."""
    if isinstance(outcome, outcomes.TimedOut) and search.clock.seconds is not None:
        return outcome.limit_seconds < search.context.options.budget.trial_timeout_seconds
    return outcome == outcomes.Lost(OUT_OF_TIME)


def ran_out(search: SearchRun, what: str) -> errors.NotSearchedEnoughError:
    """Return the error for a budget that ended during `what`, before any trial."""
    seconds = suggested(2 * search.clock.elapsed + 4 * search.clock.most_of_one())
    return errors.NotSearchedEnoughError(
        f"not searched enough: the time budget ended during {what}. "
        f"Use --time-budget {flag_of_seconds(seconds)} or more. best.yaml was not written.",
        measured=0,
        seconds=seconds,
    )
