"""The end of a search: its confirmation, and best.yaml."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from autotune.configuration.answer_words import headline, undecided_text
from autotune.configuration.best_config import BestConfig, Speedup, write_best
from autotune.configuration.training_config import render
from autotune.context.options import SearchOptions
from autotune.process.common.trial_folder import write_atomically
from autotune.searching.confirmation.confirm import ConfirmationRun
from autotune.searching.confirmation.result import Confirmed, build_answer, not_proven
from autotune.searching.run.coverage import check_enough, end_reason
from autotune.searching.run.events import Answered, Event
from autotune.searching.run.search_run import SearchRun
from autotune.searching.run.time_budget import measured_trials
from autotune.searching.trials.drift import SLOWED, baselines_apart, slowed_at_first
from autotune.study import history
from autotune.study.facts import WHOLE, Answer
from autotune.study.finished import FinishedTrial
from autotune.values.errors import NotSearchedEnoughError, StorageError
from autotune.values.strict_yaml import dump

NAME = "best-so-far.yaml"


def path_so_far(options: SearchOptions) -> Path:
    """Return the file's path in the study's folder."""
    return options.study.folder / NAME


def write_so_far(options: SearchOptions, best: FinishedTrial, baseline: FinishedTrial) -> None:
    """Write the incumbent; remove the file if that is the baseline.

    Raises:
        OSError: the file cannot be written.
    """
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
    """Remove the file if it exists."""
    path_so_far(options).unlink(missing_ok=True)


def conclude(
    search: SearchRun, confirmation: ConfirmationRun, won: Confirmed | None, *, cut_short: bool
) -> Event:
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
        check_enough(search, undecided, left_open, cut_short=cut_short)
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
    search.note_seconds()
    search.study.notes.answer = Answer(len(search.study.finished()), best)
    answered, options = emit(search, best), search.context.options
    with suppress(OSError):  # best.yaml could be written
        place, workload = options.study.folder, options.workload.model_path
        history.append(place, "search", workload, render(best.changed), won.runs)
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
    more = f"; likewise {len(found) - 1} more" if len(found) > 1 else ""
    return undecided_text(rule.metric, found[0]) + more if found else ""


def _check_calm(search: SearchRun) -> None:
    """Refuse to claim that nothing was faster if trials were compared with slowed settings.

    Raises:
        NotSearchedEnoughError: the user's settings were far faster in the confirmation than before
            the trials.
    """
    speed = slowed_at_first(search)
    if speed < SLOWED:
        return
    forget_so_far(search.context.options)
    measured = len(measured_trials(search.study.finished()))
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
    return None if end_reason(search) is None else answer.best


def emit(search: SearchRun, best: BestConfig) -> Answered:
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
    return Answered(
        best,
        out,
        remark,
        seconds=notes.phase_seconds.get(WHOLE),
        script=search.context.options.workload.script,
        own_settings=search.context.traits.seen.fixed,
    )
