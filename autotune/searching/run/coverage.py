"""The end of the trials, the part of the space that they covered, and how much claims need."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.configuration.evidence import Searched
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import knob_named
from autotune.knobs.base import Value
from autotune.searching.run.search_run import SearchRun
from autotune.searching.run.time_budget import measured_trials
from autotune.study.facts import FinishedTrial, Identity
from autotune.values.errors import NotSearchedEnoughError
from autotune.values.text import flag_of_seconds, span

SPARE = 1.25
"""Factor that suggested time budgets have to spare."""
_STEP = 30.0
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
    """Return the values that took effect: those of the domain in its order, then others."""
    values = {config[name] for config in configs if not config.is_idle(knob_named(name))}
    known = tuple(value for value in domain if value in values)
    return (*known, *sorted(values - set(known), key=str))


def check_enough(
    search: SearchRun, undecided: Sequence[FinishedTrial], left_open: str, *, cut_short: bool
) -> None:
    """Refuse to claim that nothing was faster if too little was measured.

    `undecided` trials may be faster but were not confirmed for lack of time. `left_open` is a
    clause on a faster trial whose seeds were inconclusive, if any. The trials were `cut_short` if
    they ended for lack of time.

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
        why = f"{tried}, fewer than the {measured + missing} that a result needs"
    seconds = _to_go_on(search, missing)
    why = "; ".join(filter(None, (why, left_open)))
    raise NotSearchedEnoughError(
        f"not searched enough: {why}. Finished trials are kept. Rerun the command with "
        f"--time-budget {flag_of_seconds(seconds)} or more to continue. best.yaml was not written.",
        measured=measured,
        seconds=seconds,
    )


def _to_go_on(search: SearchRun, missing: int) -> float:
    """Return the seconds of a budget with which the same search can finish.

    It begins with an inspection and a drift check, and may find a candidate.
    """
    time, context = search.time_budget, search.context
    again = context.start_seconds + context.host_seconds + time.run_seconds()
    rest = again + missing * time.next_trial_seconds() + time.candidate_seconds()
    a_seed = search.study.notes.seed_seconds or 0.0
    longer = _LONGER * (search.clock.seconds or 0.0)
    return suggested(max(SPARE * rest, longer, 5 * a_seed))


def suggested(seconds: float) -> float:
    """Return a time budget to suggest, in whole half minutes."""
    return _STEP * math.ceil(seconds / _STEP)


RUN_SECONDS = 3600.0
"""Seconds of the user's training runs, where the objective does not say how long they are."""
# A trial has to save this many times the seconds that it takes: the highest expectation among many
# configurations is too high. A judgement: benchmarks/time_to_answer.py shows what it costs.
_OVER_COST = 2
_TO_CONFIRM = "leaving time for the confirmation"
_TIME_UP = "the time budget is spent"
_ALL_AFFORDABLE = "every configuration that can be compiled in the time left was tried"
FOR_LACK_OF_TIME = (_TIME_UP, _TO_CONFIRM, _ALL_AFFORDABLE)
"""Reasons that mean lack of time: more could have been tried."""


def end_reason(search: SearchRun) -> str | None:
    """Return the reason why no further trial runs; None if there is one and time for it."""
    finished, time = search.study.finished(), search.time_budget
    if len(finished) >= search.context.trials:
        return f"all {search.context.trials} trials are done"
    if time.seconds_left() < time.next_trial_seconds():
        return _TO_CONFIRM if time.candidate else _TIME_UP
    if is_worth_a_trial(search):
        return None
    if search.study.skipped_modes:
        return _ALL_AFFORDABLE
    if search.study.exhausted():
        return "every configuration was tried"
    run = span(run_seconds(search))
    return f"another trial is unlikely to save more than it takes, in {run} of training"


def is_worth_a_trial(search: SearchRun) -> bool:
    """Return whether a trial is expected to save enough seconds of the user's run.

    That is not asked where the user gave a number of trials, or too few were measured for a claim.
    """
    if search.study.exhausted():
        return False
    if not search.may_settle or search.time_budget.missing_trials:
        return True
    gain = search.study.gain_per_second(search.time_budget.trial_cost)
    return gain * run_seconds(search) > _OVER_COST


def run_seconds(search: SearchRun) -> float:
    """Return the seconds of the user's training run with their own settings."""
    samples, rate = search.context.objective.run_samples, search.baseline.verdict.value
    return samples / rate if samples and rate else RUN_SECONDS


def widen_when_due(search: SearchRun) -> None:
    """Open the whole space once the part with which the search begins has had its time.

    That is so after its trials or seconds, or once none of it is worth a trial.
    """
    study, beginning = search.study, search.context.space.beginning
    if study.widened_at is not None:
        return
    finished = study.finished()
    if (
        beginning is None
        or len(finished) >= beginning.trials
        or search.clock.elapsed >= beginning.seconds
        or not is_worth_a_trial(search)
    ):
        study.widened_at = 0 if beginning is None else len(finished)
