"""The end of the trials, the part of the space that they covered, and how much claims need."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.configuration.answer_words import start_text
from autotune.configuration.evidence import Searched
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import knob_named
from autotune.knobs.base import Value
from autotune.sampling.acquisition import GAIN
from autotune.searching.run.search_run import SearchRun
from autotune.searching.run.time_budget import measured_trials
from autotune.study.finished import FinishedTrial
from autotune.study.identity import Identity
from autotune.values.errors import NotSearchedEnoughError
from autotune.values.text import flag_of_seconds

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
    clause on a faster trial that seeds did not prove to train as well, if any. The trials were
    `cut_short` if they ended for lack of time.

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
        f"not searched enough: {why}{_starts(search)}. Finished trials are kept. Rerun the command "
        f"with --time-budget {flag_of_seconds(seconds)} or more to continue. best.yaml was not "
        "written.",
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
    rest = again + missing * time.next_trial_seconds() + time.candidate_seconds()
    a_seed = search.study.notes.seed_seconds or 0.0
    longer = _LONGER * (search.clock.seconds or 0.0)
    return suggested(max(SPARE * rest, longer, 5 * a_seed))


def suggested(seconds: float) -> float:
    """Return a time budget to suggest, in whole half minutes."""
    return _STEP * math.ceil(seconds / _STEP)


PATIENCE = 20
"""Consecutive trials without a gain after which a search ends."""
FEWEST = 30
"""Fewest trials before a search may end for lack of a gain."""
ENOUGH = 0.95
"""Share of the ceiling that is good enough; the rest is the noise of measuring it."""


TO_CONFIRM = "leaving time for the confirmation"
"""Reason for which trials end while the budget has time: a candidate needs it."""
_TIME_UP = "the time budget is spent"
_ALL_AFFORDABLE = "every configuration that compiles in time was tried"
FOR_LACK_OF_TIME = (_TIME_UP, TO_CONFIRM, _ALL_AFFORDABLE)
"""Reasons that mean lack of time: more could have been tried."""


def end_reason(search: SearchRun) -> str | None:
    """Return the reason why no further trial runs; None if there is one and time for it."""
    finished, time = search.study.finished(), search.time_budget
    if len(finished) >= search.context.trials:
        return f"all {search.context.trials} trials are done"
    if time.seconds_left() < time.next_trial_seconds():
        return TO_CONFIRM if time.candidate else _TIME_UP
    widened_at = search.study.widened_at
    was_whole = widened_at is not None and len(finished) >= widened_at + PATIENCE
    if search.context.may_settle and was_whole and has_settled(finished):
        return f"no improvement of 1 % in {PATIENCE} trials"
    if is_at_limit(finished, search.ceiling):
        return f"{100 * ENOUGH:.0f} % of {search.ceiling:.1f}/s, which computing by itself reaches"
    if not search.study.exhausted():
        return None
    return "nothing else is worth a trial" if not search.study.skipped_modes else _ALL_AFFORDABLE


def widen_when_due(search: SearchRun) -> None:
    """Open the whole space once the part with which the search begins has had its time.

    That is so after its trials or seconds, or without a gain in them.
    """
    study, beginning = search.study, search.context.space.beginning
    if study.widened_at is not None:
        return
    finished = study.finished()
    if (
        beginning is None
        or len(finished) >= beginning.trials
        or search.clock.elapsed >= beginning.seconds
        or has_settled(finished)
    ):
        study.widened_at = 0 if beginning is None else len(finished)


def has_settled(finished: Sequence[FinishedTrial]) -> bool:
    """Return whether the best feasible value has not risen by a percent for `PATIENCE` trials."""
    if len(finished) < FEWEST:
        return False
    before, since = finished[:-PATIENCE], finished[-PATIENCE:]
    return _best(since) <= GAIN * _best(before)


def is_at_limit(finished: Sequence[FinishedTrial], ceiling: float | None) -> bool:
    """Return whether the best feasible trial is so near the ceiling that nothing is left to gain.

    The ceiling is the samples per second of computing alone, None if trials compute otherwise. A
    trial above it shows that it was measured too low; the result is then False.
    """
    if ceiling is None:
        return False
    feasible = (trial for trial in finished if trial.verdict.feasible)
    rates = [trial.details.samples_per_second or 0.0 for trial in feasible]
    return ENOUGH * ceiling <= max(rates, default=0.0) <= ceiling


def _best(trials: Sequence[FinishedTrial]) -> float:
    return max((t.verdict.value or 0.0 for t in trials if t.verdict.feasible), default=0.0)
