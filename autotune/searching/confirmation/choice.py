"""The choice of the candidate to test, by rounds where several may be the fastest."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from autotune.comparison.candidate_choice import Choosing, choose
from autotune.comparison.rounds import PLAN, Conditions, Course, Participant, time_in_round
from autotune.comparison.sequential_test import LOOKS
from autotune.configuration.job import Measure
from autotune.configuration.training_config import TrainingConfig
from autotune.searching.confirmation.candidates import Candidate
from autotune.searching.confirmation.compile_costs import ColdCosts
from autotune.searching.run.events import Event, RoundVoid
from autotune.searching.run.search_run import SearchRun
from autotune.searching.run.time_budget import LIMITS_SECONDS
from autotune.searching.trials.trial_plan import least_samples
from autotune.values.measurement import Measurement
from autotune.values.outcome import Failure


def choose_by_rounds(
    search: SearchRun, costs: ColdCosts, group: Sequence[Candidate]
) -> Generator[Event, None, Candidate | None]:
    """Choose one of the candidates; None if there is none, all fail or the time is up.

    One alone needs no rounds.
    """
    left = list(group)
    if len(left) < 2:  # noqa: PLR2004
        return next(iter(left), None)
    members = {one.participant: one for one in group}
    posteriors = {participant: one.posterior for participant, one in members.items()}
    taken: list[float] = []
    since = time.monotonic()
    for state in choose(course_of(search, costs, group), list(members), posteriors):
        taken.append(time.monotonic() - since)
        coming = max(0, len(group) + 1 - state.rounds) + LOOKS[0]
        yield from _told(state, members, coming * median(taken) + LIMITS_SECONDS)
        gone = [members[one] for one in (*state.failed, *state.set_aside)]
        left = [one for one in left if one not in gone]
        if search.clock.is_over:
            yield from [one.run_out() for one in left]
            return None
        since = time.monotonic()
    return next(iter(left), None)


def _told(
    state: Choosing, members: Mapping[Participant, Candidate], seconds_left: float
) -> Iterator[Event]:
    """Note the state of a choice in its candidates, and yield the events of the round."""
    if state.void:
        yield RoundVoid(state.rounds + 1, state.void, seconds_left)
    else:
        for participant, comparison in state.comparisons.items():
            yield members[participant].add_choosing_round(comparison, seconds_left)
    for participant, reason in state.failed.items():
        yield members[participant].fail(reason)
    for participant, other in state.set_aside.items():
        yield members[participant].set_aside(members[other])


def course_of(search: SearchRun, costs: ColdCosts, group: Sequence[Candidate]) -> Course:
    """Return the setup of rounds, with the objective and the limits of the search."""
    context = search.context

    def time(config: TrainingConfig, folder: Path, conditions: Conditions) -> Measurement | Failure:
        job = context.job(Measure(conditions.plan), config)
        job = replace(job, host=conditions.host, seed=conditions.seed)
        run = time_in_round(search.runner, job, folder)
        return search.comparable(run) if isinstance(run, Measurement) else run

    def worth(config: TrainingConfig, run: Measurement) -> float:
        fixed = costs.fixed_seconds(config, run)
        return context.objective.worth(run.samples_per_second, fixed)

    return Course(
        time=time,
        worth=worth,
        baseline=Participant("baseline", context.baseline),
        folder=search.folder("confirm", "-".join(f"{one.trial.number:04d}" for one in group)),
        seed=context.options.sampling.seed,
        memory_limit_bytes=context.memory_limit_bytes,
        host_seconds=context.host_seconds,
        may_repeat=lambda: not search.clock.is_over,
        plan=replace(PLAN, least_samples=least_samples(search)),
    )
