"""Estimate the number of processes that a search will start, for its first screen."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.accuracy.seeds import INCUMBENT_SEEDS
from autotune.comparison.sequential_test import LOOKS
from autotune.configuration.job import MeasurePlan
from autotune.context.search_context import SearchContext
from autotune.searching.confirmation.re_timing import MOST_AT_ONCE
from autotune.searching.run.time_budget import RUNS, needed_trials
from autotune.values.outcome import Observed
from autotune.values.text import span


def starts_of_script(context: SearchContext, seen: Observed) -> Iterator[str]:
    """Yield lines on how often a script is started, within the time budget if there is one."""
    least, most = _processes(context)
    seconds = _seconds_of_one(seen) if seen.steps_per_second else None
    budget, each = context.time_budget_seconds, ""
    if seconds is not None:
        each = f", about {span(seconds)} each with your settings"
    within, room = "", most
    if budget is not None and seconds is not None:
        within, room = f" in {span(budget)}", max(1, round(budget / max(1.0, seconds)))
    often = f"{least} to {min(most, room)}" if room > least else f"{min(most, room)}"
    checks = " with (longer) checks of their quality" if _has_quality(context) else ""
    checks = " with checks of their gradients" if _compares_gradients(context) else checks
    yield (
        f"about {often} times{within}{each}: as it is, up to {_trials(context)} trials{checks}, "
        "and the comparison that confirms the best"
    )
    if room < least:
        yield f"perhaps too few for an answer, which needs {least}: give a longer --time-budget"


def _seconds_of_one(seen: Observed) -> float:
    """Return the seconds of a trial with the script's settings: its start, warm-up and timing.

    torch is imported once for most of them.
    """
    plan, step = MeasurePlan(), 1 / seen.steps_per_second
    timing = max(plan.max_seconds, plan.looks[0] * step)
    start = max(0.0, seen.start_seconds - seen.import_seconds)
    return start + plan.warmup_steps * step + timing


def estimate(context: SearchContext) -> str:
    """Return how many processes of a model.py the time budget has room for, or how long all take.

    A process is timed between its first look and twice its longest time.
    """
    plan, (least, most) = MeasurePlan(), _processes(context)
    fastest, slowest = plan.looks[0] * plan.block_seconds, 2 * plan.max_seconds
    besides = "besides the accuracy probes and what torch.compile takes"
    if (budget := context.time_budget_seconds) is None:
        return (
            f"estimated: {most} processes, {span(most * fastest)} to {span(most * slowest)} of "
            f"timing, {besides}"
        )
    few = min(most, round(budget / (slowest + context.start_seconds)))
    return (
        f"estimated: {span(budget)} have room for {few} to {min(most, round(budget / fastest))} "
        f"processes, {besides}; an answer needs about {least}"
    )


def _processes(context: SearchContext) -> tuple[int, int]:
    """Return the fewest processes with which a search ends with an answer, and the most."""
    trials = _trials(context)
    with_budget = context.time_budget_seconds is not None
    least = RUNS + (needed_trials(context) if with_budget else trials) + 2 * LOOKS[0]
    most = RUNS + trials + MOST_AT_ONCE + 2 * LOOKS[-1]
    if context.observed is not None and _has_quality(context):
        # A seed of the untouched script at least. At most each trial has its first losses compared
        # and a seed of its own, and an incumbent is validated on seeds of both.
        least += 1
        most += 2 * trials + 2 * INCUMBENT_SEEDS
    if context.observed is not None and _compares_gradients(context):
        most += trials
    return least, most


def _compares_gradients(context: SearchContext) -> bool:
    script = context.options.workload.script
    return script is not None and script.compares_gradients


def _trials(context: SearchContext) -> int:
    return min(context.trials, context.space.size)


def _has_quality(context: SearchContext) -> bool:
    script = context.options.workload.script
    return script is not None and script.has_quality
