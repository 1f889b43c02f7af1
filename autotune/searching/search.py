"""The search as a generator of events: baseline, diagnosis, trials, confirmation, best.yaml.

It neither prints nor reads flags. The caller may stop at any event; finished trials are kept, and
the same search continues from them.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median

from autotune.accuracy import accuracy_verdict
from autotune.comparison.race import EARLY
from autotune.comparison.rounds import Repeats
from autotune.configuration.best_config import (
    BestConfig,
    Speedup,
    headline,
    undecided_text,
    write_best,
)
from autotune.configuration.constraints import UNNOTICED, AccuracyRule, judge
from autotune.configuration.evidence import UNCHANGED
from autotune.configuration.job import Measure, MeasurePlan
from autotune.configuration.training_config import render
from autotune.context.options import SearchOptions, time_budget_of
from autotune.context.search_context import SearchContext, survey
from autotune.context.workload import UnchangedRunner, WorkloadFiles
from autotune.process.common.trial_folder import write_atomically
from autotune.process.devices import crowded_line
from autotune.process.runner import Runner
from autotune.process.stop import OUT_OF_TIME, BudgetedRunner, Clock, Stop, StoppableRunner
from autotune.searching.confirmation.confirm import ConfirmationRun
from autotune.searching.confirmation.result import Confirmed, build_answer, not_proven
from autotune.searching.run import coverage, events, time_budget
from autotune.searching.run.diagnosis import noted_diagnosis, time_stages
from autotune.searching.run.search_run import SearchRun, details_of
from autotune.searching.trials.drift import SLOWED, baselines_apart, slowed_at_first
from autotune.searching.trials.trials import ExtraDevices, check_alike, run_together
from autotune.searching.trials.workers import admit
from autotune.study import history
from autotune.study.facts import ACCURACY, DIAGNOSIS, WHOLE, Answer, FinishedTrial
from autotune.study.storage import check_storage, file_of, network_file_system, storage_errors
from autotune.study.study import open_study
from autotune.values import outcome as outcomes
from autotune.values.errors import (
    AutotuneError,
    NotSearchedEnoughError,
    StorageError,
    UsageError,
    WorkloadError,
)
from autotune.values.measurement import Measurement, disturbance_of, uneven_text
from autotune.values.strict_yaml import dump
from autotune.values.text import flag_of_seconds, readable, span

SO_FAR = "best-so-far.yaml"
PLAN = MeasurePlan(max_seconds=1.5)
"""Plan of each baseline process, capped at 1.5 s: more processes help more than more blocks."""
Runs = tuple[Measurement, ...]
"""The baseline's processes."""
_MOST_NAMED = 3
_RESUMED = 1 / 2
"""Share of a training's gain by which a later run may begin lower by chance."""
_GAINS_NOTHING = (
    "a short training with your settings gains nothing, so no other batch size or precision "
    "can be shown to train as well. These are tried last; raise --accuracy-samples"
)


def search(
    options: SearchOptions,
    runner: Runner,
    stop: Stop | None = None,
    extra_devices: ExtraDevices | None = None,
) -> Iterator[events.Event]:
    """Find the settings under which the workload trains fastest, and write them to `options.out`.

    Trials run by `runner`, on the first device, and on `extra_devices` at the same time.

    Raises:
        UsageError: the options do not fit the machine or the workload, or the devices differ.
        WorkloadError: the workload fails with the user's own settings.
        StorageError: the study cannot be read or written.
        StudyMismatchError: a study of this name was made for something else.
        FilesChangedError: a file of the training changed during the search.
        TooManyLostError: trial after trial failed or was lost.
        NotSearchedEnoughError: the time budget is too short for enough trials or for confirmation.
        KeyboardInterrupt: a stop was asked for; the same search continues.
    """
    check_storage(options.study.storage)
    stop = stop or Stop()
    clock = Clock(time_budget_of(options))
    files = WorkloadFiles(options.workload)
    runner = UnchangedRunner(StoppableRunner(BudgetedRunner(runner, clock), stop), files)
    with storage_errors(options.study.storage), stop.comes_first():
        search = _opened(survey(options, runner), runner, stop, clock)
        files.add_imports(search.context.facts)
        others = {one: UnchangedRunner(own, files) for one, own in (extra_devices or {}).items()}
        try:
            # Closed before the study: a trial that is cut off here is still told to it.
            with closing(_search(search, others)) as told:
                for event in told:
                    if isinstance(event, events.TrialEnded) and event.best is event.trial:
                        write_so_far(search.context.options, event.best, event.baseline)
                    yield event
        finally:
            search.study.disconnect()


def _opened(context: SearchContext, runner: Runner, stop: Stop, clock: Clock) -> SearchRun:
    """Open or create the study, and return this search run."""
    options = context.options.study
    study = open_study(options.name, options.storage, context.space, context.objective)
    try:
        study.check_identity(context.identity)
        study.take_back()
        # Every run of the search charges trials the same start, however warm the caches are.
        known = study.notes.start_seconds
        start_seconds = context.start_seconds if known is None else known
        study.notes.start_seconds = start_seconds
    except BaseException:
        study.disconnect()
        raise
    context = replace(context, start_seconds=start_seconds)
    may_settle = context.options.budget.trials is None
    return SearchRun(context, runner, study, may_settle, clock, stop)


def _search(search: SearchRun, extra_devices: ExtraDevices) -> Generator[events.Event, None, None]:
    study = search.study
    yield events.Planned(search.context, len(study.finished()))
    yield from _warnings(search.context)
    yield from check_alike(search, extra_devices)
    search = yield from _narrowed(search)
    known = known_answer(search)
    if known is not None:
        yield events.TrialsEnded(coverage.end_reason(search) or "")
        yield emit(search, known)
        return
    begun = yield from _measured_baseline(search)
    if isinstance(begun, str):
        yield events.NothingFeasible({f"your settings: {begun}": 1})
        return
    search, runs = begun
    confirmation = ConfirmationRun(search, runs)
    admit(search)
    reason, won = yield from _tried(search, extra_devices, confirmation)
    thorough = replace(search, may_settle=False)
    if won is None and confirmation.refuted and coverage.end_reason(thorough) is None:
        # The trials that were expected to gain little were compared with one that seemed fast.
        reason, won = yield from _tried(thorough, extra_devices, confirmation)
    yield conclude(search, confirmation, won, cut_short=reason in coverage.FOR_LACK_OF_TIME)


def _tried(
    search: SearchRun, extra_devices: ExtraDevices, confirmation: ConfirmationRun
) -> Generator[events.Event, None, tuple[str, Confirmed | None]]:
    """Run trials, then the confirmation; return why the trials ended, and the winner, if any."""
    eta = search.time_budget.eta_seconds()
    yield events.PhaseStarted("search", f"{search.context.trials} trials in total", eta)
    yield from run_together(search, extra_devices)
    reason = coverage.end_reason(search) or ""
    yield events.TrialsEnded(reason)
    eta = search.time_budget.conclusion_seconds()
    yield events.PhaseStarted("confirmation", f"fresh processes, {EARLY} rounds or more", eta)
    return reason, (yield from confirmation.run())


def _narrowed(search: SearchRun) -> Generator[events.StagesTimed, None, SearchRun]:
    """Return the search without values that cannot matter by the study's diagnosis, if any."""
    found = noted_diagnosis(search.context, search.study)
    if found is None:
        return search
    search = search.narrowed_by(found)
    yield events.StagesTimed(found, search.context.space)
    return search


def _measured_baseline(
    search: SearchRun,
) -> Generator[events.Event, None, tuple[SearchRun, Runs] | str]:
    """Measure the user's settings with their accuracy and their stages, and add the first trial.

    Returns:
        The search, narrowed by the diagnosis, and the baseline's processes; or the reason why the
        settings are no feasible reference.
    """
    judged = ", then their quality" if search.context.judge.tries_numerics else ""
    text = f"your settings in {time_budget.RUNS} processes{judged}"
    yield events.PhaseStarted("baseline", text, search.clock.known_left)
    runs = yield from measure_reference(search)
    if isinstance(runs, str):
        return runs
    search = with_package_seconds(search, runs)
    if disturbance := disturbance_of(runs):
        when = "while your settings were timed, so the result is less certain"
        yield events.Warned(f"{disturbance} {when}")
    if uneven := uneven_text(runs):
        yield events.Warned(f"your settings: {uneven}")
    is_new = not search.study.finished()
    if is_new:
        yield events.StepStarted("quality of your settings")
    with search.noting_seconds(ACCURACY):
        rule = first_rule(search, runs)
    if isinstance(rule, str):
        return rule
    may_lose = search.context.options.accuracy.tolerance.amount > 0
    if search.context.judge.tries_numerics and may_lose and not search.prober.can_accept:
        yield events.Warned(_GAINS_NOTHING)
    yield events.Noted(costs_text(search, runs))
    if is_new and search.study.notes.diagnosis is None:
        left = search.clock.known_left
        yield events.PhaseStarted("diagnosis", "each phase of a step by itself", left)
        with search.noting_seconds(DIAGNOSIS):
            found = time_stages(search.context, search.runner)
        if isinstance(found, outcomes.Diagnosed):
            search.study.notes.diagnosis = found
            search = yield from _narrowed(search)
        else:
            yield events.Noted(f"no diagnosis, searching all settings: {outcomes.describe(found)}")
    own = tell_baseline(search, runs, rule)
    yield search.trial_ended(own)
    return (search, runs) if own.verdict.feasible else own.verdict.reason


def _warnings(context: SearchContext) -> Iterator[events.Warned]:
    """Warn of a database on a network file system, and of a device that others fill."""
    database = file_of(context.options.study.storage)
    if database is not None and (kind := network_file_system(database)):
        yield events.Warned(
            f"{database} lies on {kind}, where SQLite's locks may not hold. Choose a local "
            "directory or a database server with --storage."
        )
    device, free = context.machine.device, context.device_free_bytes
    if crowded := crowded_line(device, free, context.memory_limit_bytes):
        yield events.Warned(crowded)


def path_so_far(options: SearchOptions) -> Path:
    """Return the path of best-so-far.yaml in the study's folder."""
    return options.study.folder / SO_FAR


def write_so_far(options: SearchOptions, best: FinishedTrial, baseline: FinishedTrial) -> None:
    """Write the incumbent to best-so-far.yaml; remove that if it is the baseline."""
    if best.number == baseline.number:
        forget_so_far(options)
        return
    data = {
        "unconfirmed": True,
        "note": "The fastest trial so far, timed once and not confirmed. best.yaml is written "
        "when the search ends.",
        "study": options.study.name,
        "trial": best.number,
        "config": best.config.as_dict(),
        "samples_per_second": best.details.samples_per_second,
        "baseline_samples_per_second": baseline.details.samples_per_second,
    }
    write_atomically(path_so_far(options), dump(data))


def forget_so_far(options: SearchOptions) -> None:
    """Remove best-so-far.yaml if it exists."""
    path_so_far(options).unlink(missing_ok=True)


def conclude(
    search: SearchRun, confirmation: ConfirmationRun, won: Confirmed | None, *, cut_short: bool
) -> events.Event:
    """Write best.yaml with what was confirmed, or with the baseline if nothing was.

    The trials were `cut_short` if they ended for lack of time.

    Raises:
        NotSearchedEnoughError: too little was measured to say that nothing is faster, or another
            program slowed the user's settings before the trials.
    """
    runs = confirmation.runs
    if won is None:
        undecided = [one.trial for one in confirmation.undecided]
        left_open = _left_open(search, undecided)
        coverage.check_enough(search, undecided, left_open, cut_short=cut_short)
        _check_calm(search)
        tests = confirmation.tests
        timed = tuple(run for test in tests for run in test.baseline)
        rounds = len(timed) if len(timed) >= len(runs) else 0
        disturbed = [test.disturbed for test in tests if test.disturbed is not None]
        speedup = Speedup(
            ratio=1.0,
            ci95=(1.0, 1.0),
            rounds=rounds,
            disturbed_rounds=sum(disturbed) if disturbed else None,
            repeated_rounds=sum(len(test.repeated) for test in tests),
        )
        timed, qualities = timed if rounds else runs, search.prober.rule.baseline
        won = Confirmed(search.baseline, timed, timed, qualities, speedup)
    failed = (one for one in confirmation.candidates if one.state == "failed")
    won = replace(won, failed=tuple((one.trial, one.reason) for one in failed))
    # The trial that won compiled for a result that lacks settings of it, too.
    costs, back = confirmation.costs, won.taken_back
    if back is None or "compile_mode" not in back.settings:
        costs = replace(costs, trials=(*costs.trials, won.trial))
    best = build_answer(search.prober, costs, won)
    noted = search.study.notes.phase_seconds
    noted[WHOLE] = round(noted.get(WHOLE, 0.0) + max(0.0, search.clock.elapsed), 1)
    search.study.notes.answer = Answer(len(search.study.finished()), best)
    answered, context = emit(search, best), search.context
    rated = context.options.workload.model_path, render(best.changed), won.runs
    rate = history.ConfirmedRate.of("search", *rated, context.machine, context.processes)
    with suppress(OSError):  # best.yaml could be written
        history.append(context.options.study.folder, rate)
    return answered


def _left_open(search: SearchRun, named: Sequence[FinishedTrial]) -> str:
    """Return a clause on the fastest trial that its seeds leave open, except those `named`.

    It is empty if there is none. No seed is drawn.
    """
    prober = search.prober
    if not prober.known(search.context.baseline):
        return ""
    rule, numbers = prober.rule, {one.number for one in named}
    found = not_proven(prober, rule, search.baseline)
    found = [one for one in found if one.trial not in numbers]
    more = f"; {len(found) - 1} more are inconclusive" if len(found) > 1 else ""
    return undecided_text(rule.metric, found[0]) + more if found else ""


def _check_calm(search: SearchRun) -> None:
    """Refuse to claim that nothing was faster if trials were compared with slowed settings."""
    speed = slowed_at_first(search)
    if speed < SLOWED:
        return
    forget_so_far(search.context.options)
    measured = len(time_budget.measured_trials(search.study.finished()))
    raise NotSearchedEnoughError(
        f"not searched enough: your settings ran {speed:.2g} times as fast in the confirmation as "
        f"before the trials. Something slowed them then, so the comparison with {measured} "
        "configurations tells little. Search again with a new --study NAME when nothing else runs "
        "on this machine. best.yaml was not written.",
        measured=measured,
    )


def known_answer(search: SearchRun) -> BestConfig | None:
    """Return the result of an earlier run; None if trials came after it or are still to come."""
    answer = search.study.notes.answer
    if answer is None or answer.trials != len(search.study.finished()):
        return None
    return None if coverage.end_reason(search) is None else answer.best


def emit(search: SearchRun, best: BestConfig) -> events.Answered:
    """Write best.yaml and remove best-so-far.yaml.

    Raises:
        StorageError: the file cannot be written; the study keeps the result.
    """
    out = search.context.options.study.out
    try:
        write_best(best, out, headline(best))
    except OSError as error:
        raise StorageError(
            f"{out} cannot be written: {error.strerror}. The study keeps the result: free some "
            "space or choose another --out, and rerun the command."
        ) from error
    forget_so_far(search.context.options)
    blocks = best.evidence.blocks
    told = [baselines_apart(search.study.notes), None if blocks is None else blocks.remark]
    remark = "; ".join(filter(None, told)) or None
    notes = search.study.notes
    return events.Answered(
        best,
        out,
        remark,
        seconds=notes.phase_seconds.get(WHOLE),
        script=search.context.options.workload.script,
        own_settings=search.context.traits.seen.fixed,
    )


def with_package_seconds(search: SearchRun, runs: Runs) -> SearchRun:
    """Return the search with the seconds for which hosts import the packages of a script.

    The observed run took so much longer to its first step than processes whose host had them.
    Anything that only a first run prepares, such as a cache, counts as packages as well.
    """
    seen, build = search.context.traits.seen, min(run.build_seconds for run in runs)
    packages = max(0.0, seen.start_seconds - seen.import_seconds - build)
    return replace(search, context=replace(search.context, package_seconds=packages))


def measure_reference(search: SearchRun) -> Generator[events.StepStarted, None, Runs | str]:
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
    repeats: Repeats[Measurement] = Repeats(time_budget.RUNS, lambda: not search.clock.is_over)
    repeated = ""
    while len(runs) < time_budget.RUNS:
        yield events.StepStarted(f"process {len(runs) + 1} of {time_budget.RUNS}{repeated}")
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
            raise AutotuneError(
                f"The baseline run did not complete ({outcome.detail}). Rerun the command."
            )
        if not isinstance(outcome, outcomes.Measured):
            raise WorkloadError(_own_settings_fail(search, outcome, folder))
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
        raise UsageError(
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
        raise WorkloadError(
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
    seconds = coverage.suggested(coverage.SPARE * (search.clock.elapsed + enough))
    each = span(time_budget.process_seconds(run))
    raise NotSearchedEnoughError(
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


def ran_out(search: SearchRun, what: str) -> NotSearchedEnoughError:
    """Return the error for a budget that ended during `what`, before any trial."""
    seconds = coverage.suggested(2 * search.clock.elapsed + 4 * search.clock.most_of_one())
    return NotSearchedEnoughError(
        f"not searched enough: the time budget ended during {what}. "
        f"Use --time-budget {flag_of_seconds(seconds)} or more. best.yaml was not written.",
        measured=0,
        seconds=seconds,
    )
