"""Coverage of a search: the part of the space that was measured, and how much claims need."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.configuration.answer_words import start_text
from autotune.configuration.evidence import Searched
from autotune.configuration.training_config import TrainingConfig
from autotune.context.budget_clock import OUT_OF_TIME
from autotune.knobs import knob_named
from autotune.knobs.base import Value
from autotune.searching.run.search_run import SearchRun
from autotune.searching.run.seconds import process_seconds
from autotune.searching.run.time_budget import measured_trials, needed_trials
from autotune.study.finished import FinishedTrial
from autotune.study.identity import Identity
from autotune.values.errors import NotSearchedEnoughError
from autotune.values.measurement import Measurement
from autotune.values.outcome import Lost, TimedOut
from autotune.values.text import flag_of_seconds, span

# Suggested budgets have this factor to spare and are multiples of half a minute.
_SPARE, _STEP = 1.25, 30.0
# A suggested budget is at least this many times the one that was too short.
_LONGER = 1.5


def searched_part(identity: Identity | None, finished: Sequence[FinishedTrial]) -> Searched | None:
    """Return the part of the whole space that was tried; None without trials or a known space."""
    space = None if identity is None else identity.space
    if space is None or not finished:
        return None
    measured = measured_trials(finished)
    run = [trial for trial in finished[1:] if not trial.details.foreseen]
    tried = {
        name: _tried(name, values, [finished[0].config, *(trial.config for trial in run)])
        for name, values in space.varied().items()
    }
    return Searched(
        configurations=space.size,
        measured=len(measured),
        failed=len(run) - len(measured),
        tried={name: values for name, values in tried.items() if len(values) > 1},
        never_varied=tuple(name for name, values in tried.items() if len(values) < 2),  # noqa: PLR2004
    )


def _tried(
    name: str, domain: Sequence[Value], configs: Sequence[TrainingConfig]
) -> tuple[Value, ...]:
    """Return the values that were in force: those of the domain in its order, then others."""
    values = {config[name] for config in configs if not config.is_idle(knob_named(name))}
    known = tuple(value for value in domain if value in values)
    return (*known, *sorted(values - set(known), key=str))


def check_plan(search: SearchRun, runs: Sequence[Measurement]) -> None:
    """Refuse a time budget that is too short for enough trials.

    The quickest process tells how long a trial takes. The first one alone refuses nothing if there
    is time for a second: it may have read libraries and data that are in memory from then on.

    Args:
        search: the search, before its first trial.
        runs: the baseline's processes so far.

    Raises:
        NotSearchedEnoughError: the budget is too short for `needed_trials` and a confirmation.
    """
    wanted = needed_trials(search.context)
    if search.study.finished() or wanted < 1:
        return
    run = min(runs, key=process_seconds)
    least = search.first_estimates.least_seconds(run, wanted)
    is_first_of_two = len(runs) == 1 and process_seconds(run) <= search.clock.left
    if least <= search.clock.left or is_first_of_two:
        return
    enough = search.first_estimates.enough_seconds(run, wanted)
    seconds = _rounded_up(_SPARE * (search.clock.elapsed + enough))
    raise NotSearchedEnoughError(
        f"not searched enough: a process of your settings takes {span(process_seconds(run))}, so "
        f"that the other processes for them, {wanted} trial{'s' if wanted > 1 else ''} and the "
        f"confirmation need about "
        f"{span(least)}, and {span(max(0.0, search.clock.left))} of the time budget are left. "
        f"Use --time-budget {flag_of_seconds(seconds)} or more. best.yaml was not written.",
        measured=0,
        seconds=seconds,
    )


def check_enough(
    search: SearchRun, undecided: Sequence[FinishedTrial], left_open: str, *, cut_short: bool
) -> None:
    """Refuse to claim that nothing was faster if too little was measured.

    Args:
        search: the search, with its trials done.
        undecided: trials that may be faster but were not confirmed for lack of time.
        left_open: clause on a faster trial that seeds did not prove to train as well, if any.
        cut_short: whether the trials ended for lack of time.

    Raises:
        NotSearchedEnoughError: one of `undecided` is a candidate, or the trials were cut short
            and fewer than `needed_trials` were measured.
    """
    finished = search.study.finished()
    searched = searched_part(search.study.notes.identity, finished)
    measured = len(measured_trials(finished))
    undecided = [trial for trial in undecided if search.time_budget.is_candidate(trial)]
    missing = search.time_budget.missing_trials if cut_short else 0
    if not missing and not undecided:
        return
    size = search.context.space.size if searched is None else searched.configurations
    tried = f"{measured} of {size} configurations {'was' if measured == 1 else 'were'} measured"
    if undecided:
        first = undecided[0]
        ratio = (first.verdict.value or 0.0) / (search.baseline.verdict.value or math.inf)
        needs_seeds = search.time_budget.seeds_seconds(first) > 0
        shown = "and its accuracy were confirmed" if needs_seeds else "was confirmed"
        why = (
            f"trial {first.number} was {ratio:.2f}x as fast as your settings, but the time budget "
            f"ended before that {shown} ({tried})"
        )
    else:
        why = f"{tried}, fewer than the {measured + missing} that an answer needs"
    seconds = _to_go_on(search, missing)
    why = "; ".join(filter(None, (why, left_open)))
    raise NotSearchedEnoughError(
        f"not searched enough: {why}{_starts(search)}. Finished trials are kept: the same command "
        f"with --time-budget {flag_of_seconds(seconds)} or more continues with them. best.yaml was "
        "not written.",
        measured=measured,
        seconds=seconds,
    )


def _starts(search: SearchRun) -> str:
    """Return how much of this run the starts of the script took; empty for a model.py."""
    if search.context.observed is None:
        return ""
    return f"; {start_text((max(0.0, search.clock.elapsed), search.starts.seconds))}"


def _to_go_on(search: SearchRun, missing: int) -> float:
    """Return the seconds of a budget with which the same search can finish.

    It begins with an inspection and a drift check, and may find a candidate.
    """
    time, context = search.time_budget, search.context
    again = context.start_seconds + context.host_seconds + time.run_seconds()
    rest = again + missing * time.trial_seconds() + time.candidate_seconds()
    a_seed = search.study.notes.seed_seconds or 0.0
    longer = _LONGER * (search.clock.seconds or 0.0)
    return _rounded_up(max(_SPARE * rest, longer, 5 * a_seed))


def cut_by_budget(search: SearchRun, outcome: object) -> bool:
    """Return whether a process ended for no other reason than the time budget."""
    if isinstance(outcome, TimedOut) and search.clock.seconds is not None:
        return outcome.limit_seconds < search.context.options.budget.trial_timeout_seconds
    return outcome == Lost(OUT_OF_TIME)


def ran_out(search: SearchRun, what: str) -> NotSearchedEnoughError:
    """Return the error for a budget that ended during `what`, before any trial."""
    seconds = _rounded_up(2 * search.clock.elapsed + 4 * search.clock.most_of_one())
    return NotSearchedEnoughError(
        f"not searched enough: the time budget ended during {what}. "
        f"Use --time-budget {flag_of_seconds(seconds)} or more. best.yaml was not written.",
        measured=0,
        seconds=seconds,
    )


def _rounded_up(seconds: float) -> float:
    return _STEP * math.ceil(seconds / _STEP)
