"""What became of the candidates is in the study when a confirmation is over."""

from __future__ import annotations

from collections.abc import Generator

import optuna

from autotune.configuration.search_space import SearchSpace
from autotune.searching.confirmation.confirmation_log import kept
from autotune.searching.run.events import CandidateRefused, CandidateSetAside, Event, RoundEnded
from autotune.study.study import FinishedTrial, TuningStudy
from tuning import HOLDS, THROUGHPUT, tell


def told(nine: SearchSpace) -> TuningStudy:
    """A study of three trials."""
    study = TuningStudy(optuna.create_study(direction="maximize"), nine, THROUGHPUT)
    study.use_sampler("grid", seed=0)  # no configuration twice
    for value in (80.0, 90.0, 100.0):
        tell(study, value, HOLDS)
    return study


def sequential_test(trials: list[FinishedTrial]) -> Generator[Event, None, str]:
    first, second = trials[1], trials[2]
    for number in (1, 2):
        ratios = (1.25,) * number
        yield RoundEnded(first.config, ratios, (1.2, 1.3))
        yield RoundEnded(second.config, ratios, (1.2, 1.3))
    yield CandidateSetAside(second, first)
    yield CandidateRefused(first, "too much memory")
    yield RoundEnded(second.config, (1.5,), (1.5, 1.5))
    return "won"


def test_events_and_result_pass_through_and_the_fates_stay(nine: SearchSpace) -> None:
    study = told(nine)
    results: list[str] = []

    def drive() -> Generator[Event, None, None]:
        results.append((yield from kept(study, sequential_test(study.finished()))))

    events = list(drive())
    assert results == ["won"]
    assert len(events) == 7
    noted = study._study.user_attrs["confirmation"]
    assert noted["seconds"] >= 0
    assert noted["candidates"] == {
        "1": {"ratios": [1.25, 1.25], "ci95": [1.2, 1.3], "refused": "too much memory"},
        "2": {"ratios": [1.5], "ci95": [1.5, 1.5]},
    }
