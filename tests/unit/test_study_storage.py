"""A study that is continued by another process, and storages that cannot be used."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from autotune.configuration.search_space import SearchSpace
from autotune.values.errors import StorageError, StudyMismatchError, UsageError
from covering import covers
from study_factories import CRASHED, HOLDS, OOM, opened, reported, tell


def test_a_second_study_on_the_same_database_reads_everything_back(
    nine: SearchSpace, url: str
) -> None:
    first = opened(url, nine)
    for value, margins in ((80.0, HOLDS), (90.0, OOM), (None, CRASHED)):
        tell(first, value, margins)
    again = opened(url, nine)
    for old, new in zip(first.finished(), again.finished(), strict=True):
        assert (old.number, old.config, old.verdict) == (new.number, new.config, new.verdict)
        assert old.details == new.details


def test_a_continued_study_does_not_repeat_what_an_earlier_run_measured(
    nine: SearchSpace, url: str
) -> None:
    proposed = []
    for _ in range(3):  # three runs that draw the same random numbers
        study = opened(url, nine)
        proposed += [tell(study, 1.0, HOLDS) for _ in range(3)]
    assert len(set(proposed)) == 9


def test_trials_that_a_dead_process_left_running_are_failed_and_come_again(
    nine: SearchSpace, url: str
) -> None:
    dead = opened(url, nine)
    left = {dead.ask()[1], dead.ask()[1]}
    study = opened(url, nine)
    assert study.reap() == 2
    assert study.reap() == 0
    there = optuna.load_study(study_name="s", storage=url).trials
    assert [trial.state for trial in there] == [TrialState.FAIL] * 2
    assert left <= {tell(study, 1.0, HOLDS) for _ in range(9)}


def test_a_wish_of_a_dead_process_does_not_replace_the_next_one(
    nine: SearchSpace, url: str
) -> None:
    opened(url, nine)
    wanted, unwanted = list(nine.configurations())[:2]
    params = {name: unwanted[name] for name in nine.varied()}
    optuna.load_study(study_name="s", storage=url).enqueue_trial(params)
    study = opened(url, nine)
    assert study.reap() == 1
    assert study.ask(wanted)[1] == wanted


def test_the_same_identity_is_accepted_on_every_run(nine: SearchSpace, url: str) -> None:
    identity = {"machine": "abc", "space": {"amp_dtype": [None, "bfloat16"]}}
    for _ in range(3):
        opened(url, nine).check_identity(identity)


def test_a_study_of_something_else_is_refused_with_every_difference(
    nine: SearchSpace, url: str
) -> None:
    opened(url, nine).check_identity({"a": 1, "b": [2], "c": "x"})
    with pytest.raises(StudyMismatchError) as caught:
        opened(url, nine).check_identity({"a": 1, "b": [3], "c": "y"})
    assert str(caught.value).splitlines() == [
        "study 's' was made for something else:",
        "  b: [2] in the study, [3] now",
        '  c: "x" in the study, "y" now',
        "--new-study gives this search a study of its own, as --study NAME does. --force begins "
        "anew under the old name, beside the other's trials.",
    ]


def test_of_facts_in_facts_only_those_that_differ_are_named_and_digests_are_not_shown(
    nine: SearchSpace, url: str
) -> None:
    script = {"arguments_sha256": "a" * 64, "metric": [None, True]}
    space = {"num_threads": [1, 2], "num_workers": [0, 1]}
    opened(url, nine).check_identity({"script": script, "domains": space})
    now = {
        "script": script | {"arguments_sha256": "b" * 64},
        "domains": space | {"num_workers": [0, 4]},
    }
    with pytest.raises(StudyMismatchError) as caught:
        opened(url, nine).check_identity(now)
    assert str(caught.value).splitlines()[1:-1] == [
        "  the script's arguments or maps: not those of the study",
        "  domains.num_workers: [0, 1] in the study, [0, 4] now",
    ]


@pytest.mark.parametrize(("before", "now"), [({"b": [2]}, {}), ({}, {"b": [2]})])
def test_a_fact_that_only_one_of_both_has_is_a_difference(
    before: dict[str, object], now: dict[str, object], nine: SearchSpace, url: str
) -> None:
    opened(url, nine).check_identity({"a": 1, **before})
    with pytest.raises(StudyMismatchError, match=r"  b: .*null") as caught:
        opened(url, nine).check_identity({"a": 1, **now})
    assert "  a: " not in str(caught.value)


def test_a_study_with_another_direction_is_refused(nine: SearchSpace, url: str) -> None:
    optuna.create_study(study_name="s", storage=url, direction="minimize")
    with pytest.raises(StudyMismatchError, match="another direction than throughput"):
        opened(url, nine)


@pytest.mark.parametrize("content", [None, "this is no database, however long it may be" * 9])
def test_a_storage_that_cannot_be_used_is_a_message(
    tmp_path: Path, nine: SearchSpace, content: str | None
) -> None:
    path = tmp_path / "no such folder" / "study.db"
    if content is not None:
        path.parent.mkdir()
        path.write_text(content)
    helps = "Check that it exists" if content is None else "`autotune repair "
    with pytest.raises(StorageError, match=rf"cannot be used: .* {helps}"):
        opened(f"sqlite:///{path}", nine)


HOSTILE: list[dict[str, Any]] = [
    {},
    {"config": 5, "value": 1.0, "reason": ""},
    {"config": {"batch_size": "../../x"}, "value": 1.0, "reason": ""},
    {"config": {}, "value": "1.0s", "reason": ""},
    {"config": {}, "value": [1.0], "reason": ""},
    {"config": {}, "value": 1.0},
]


@covers("X5")
@pytest.mark.parametrize("attributes", HOSTILE)
def test_trials_that_someone_else_told_are_data_and_refused(
    nine: SearchSpace, url: str, attributes: dict[str, Any]
) -> None:
    foreign = optuna.create_study(study_name="s", storage=url, direction="maximize")
    margins = {"constraints": [-1.0, -1.0, -1.0]}
    trial = optuna.create_trial(value=1.0, user_attrs=attributes, system_attrs=margins)
    foreign.add_trial(trial)
    with pytest.raises(
        StudyMismatchError, match="trial 0 of the study was not written by autotune"
    ):
        opened(url, nine)
    with pytest.raises(UsageError, match=r"'s' was not made by autotune"):
        reported(url)


@pytest.mark.parametrize("number", [None, math.inf])
def test_a_trial_that_another_program_told_is_not_written_down(
    nine: SearchSpace, url: str, tmp_path: Path, number: float | None
) -> None:
    foreign = optuna.create_study(study_name="s", storage=url, direction="maximize")
    ours = {"config": {}, "value": 1.0, "reason": ""}
    foreign.add_trial(
        optuna.create_trial(
            value=1.0,
            params={"x": number},
            distributions={"x": optuna.distributions.CategoricalDistribution([number])},
            user_attrs={"config": {}} if number is None else ours,
            system_attrs={"constraints": [-1.0, -1.0, -1.0]},
        )
    )
    with pytest.raises(
        StudyMismatchError, match="trial 0 of the study was not written by autotune"
    ):
        opened(url, nine, tmp_path)
    assert not (tmp_path / "results.jsonl").exists()


@pytest.mark.parametrize("margins", [None, [-1.0], ["a", "b", "c"], 7, {"memory": -1.0}])
def test_constraints_that_someone_else_told_are_data_and_refused(
    nine: SearchSpace, url: str, margins: object
) -> None:
    foreign = optuna.create_study(study_name="s", storage=url, direction="maximize")
    told = {"config": {}, "value": 1.0, "reason": ""}
    system = {} if margins is None else {"constraints": margins}
    foreign.add_trial(optuna.create_trial(value=1.0, user_attrs=told, system_attrs=system))
    with pytest.raises(StudyMismatchError, match="not written by autotune"):
        opened(url, nine)
