"""A confirmation for which no time is left."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from autotune.configuration.search_space import SearchSpace
from autotune.context.options import SearchOptions
from autotune.context.search_context import SearchContext
from autotune.sampling.acquisition import Posterior
from autotune.searching.confirmation import confirm
from autotune.searching.run.search_run import SearchRun
from factories import IMAGE_FACTS, cpu_machine
from scripted_runner import ScriptedRunner
from study_factories import add, study_of


@pytest.fixture
def late(nine: SearchSpace, tmp_path: Path) -> SearchRun:
    """A search whose time is over, with trials 0.5 % and 50 % above the baseline."""
    options = SearchOptions.of(
        model_path=Path("model.py"), study="s", storage=None, folder=tmp_path, out=tmp_path / "b"
    )
    study, configs = study_of(nine), list(nine.configurations())
    for config, value in zip(configs, (100.0, 100.5, 150.0), strict=False):
        add(study, config, value, seconds=1.0, process_seconds=1.0, samples_per_second=value)
    context = SearchContext(options, cpu_machine(), IMAGE_FACTS, configs[0], nine, 9, 1 << 32)
    context = replace(context, time_budget_seconds=1.0)
    return SearchRun(context, ScriptedRunner(), study, started=time.monotonic() - 100)


def test_every_trial_that_looked_faster_is_undecided_whichever_comes_first(
    late: SearchRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = late.study.finished()[1:]
    found = [confirm.Candidate(trial, Posterior()) for trial in trials]
    monkeypatch.setattr(confirm, "candidates", lambda *_: found)
    run = confirm.ConfirmationRun(late, SimpleNamespace(), SimpleNamespace())  # type: ignore[arg-type]
    assert [event.trial for event in run.run()] == trials
    assert [one.trial for one in run.undecided] == trials
    assert late.time_budget.is_candidate(trials[1])
    assert not late.time_budget.is_candidate(trials[0])
