"""A search is told to people in lines and to programs in JSON."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.configuration.answer_words import facts, searched_facts
from autotune.configuration.evidence import LearningRate, PredictedRun, Searched
from autotune.configuration.script import ScriptOptions
from autotune.configuration.search_space import narrow, read_space
from autotune.configuration.training_config import TrainingConfig
from autotune.console.answer_lines import answer_lines, result
from autotune.console.progress import PlainProgress
from autotune.context.options import SearchOptions, StudyOptions, WorkloadOptions
from autotune.context.search_context import SearchContext
from autotune.searching.run.events import (
    Answered,
    NothingFeasible,
    PhaseStarted,
    Planned,
    RoundEnded,
    StepStarted,
    TrialEnded,
)
from autotune.searching.run.search_run import details_of
from autotune.values.measurement import Noise
from autotune.values.outcome import Measured
from factories import IMAGE_FACTS, best_config, cpu_machine, measurement, written
from reporting import OWN, trial
from study_factories import OOM

BASELINE = TrainingConfig.of(OWN)
BASE = trial(0)
FASTER = trial(1, 150.0, batch_size=64)
DISTURBED = tuple(replace(one, noise=Noise(foreign=0.5)) for one in measurement().blocks)
TOO_LARGE = trial(2, None, OOM, "out of host memory: \x1b[31mfull", batch_size=512)


@pytest.fixture
def shown(tmp_path):
    """Progress that knows its plan, and the lines that it writes from then on."""
    file = read_space(written(tmp_path, "batch_size: [32, 64, 512]\n"))
    space = narrow(file, cpu_machine(), IMAGE_FACTS, BASELINE)
    kept = StudyOptions("s", "sqlite://", tmp_path, tmp_path / "best.yaml")
    options = SearchOptions(WorkloadOptions(Path("model.py")), kept)
    lines = []
    progress = PlainProgress(lines.append)
    progress.show(
        Planned(SearchContext(options, cpu_machine(), IMAGE_FACTS, BASELINE, space, 3, 1 << 32), 0)
    )
    lines.clear()
    return progress, lines


def ended(trial, best):
    return TrialEnded(trial, BASE, best, elapsed_seconds=61, eta_seconds=30)


def test_a_trial_shows_what_differs_its_rate_its_gain_its_memory_and_its_verdict(shown):
    progress, lines = shown
    progress.show(ended(FASTER, FASTER))
    assert lines[0].split() == ["1", "150.0/s", "1.50x", "1", "GiB", "batch_size=64", "ok"]


@pytest.mark.parametrize(
    ("timed", "note"),
    [
        ({"flags": ("stopped_early",)}, "stopped early, clearly slower"),
        ({"blocks": DISTURBED}, "ok, 6 blocks disturbed by other programs"),
        ({"machine_speed": 0.75}, "ok, machine at 75 % of its first speed"),
    ],
)
def test_a_number_that_is_not_what_it_seems_says_so(timed, note, shown):
    progress, lines = shown
    details = details_of(Measured(replace(measurement(150.0), **timed)), 2.0)
    progress.show(ended(replace(FASTER, details=details), FASTER))
    assert lines[0].endswith(note)


def test_before_the_trials_each_step_is_told(shown):
    progress, lines = shown
    progress.show(StepStarted("process 2 of 3"))
    progress.show(PhaseStarted("diagnosis", "each phase of a step by itself", 50.0))
    assert lines == ["  process 2 of 3", "  each phase of a step by itself"]


def test_a_round_shows_its_ratio_what_all_say_so_far_and_whose_it_is(shown):
    progress, lines = shown
    progress.show(RoundEnded(FASTER.config, (1.4, 1.5), (1.4, 1.5)))
    progress.show(RoundEnded(FASTER.config, (1.4, 1.5, 1.6), (1.4, 1.6)))
    progress.show(RoundEnded(TOO_LARGE.config, (1.1,), (1.1, 1.1)))
    assert [line.partition("  (")[0] for line in lines] == [
        "  round 2  1.500x",
        "  round 3  1.600x",
        "  round 1  1.100x",
    ]
    assert [line.partition(")")[2] for line in lines[:2]] == ["  batch_size=64", ""]
    assert lines[2].partition(")")[2].startswith("  batch_size=")


def test_the_time_of_a_run_is_told_where_it_was_asked_for():
    best = best_config(FASTER.config, BASELINE)
    run = PredictedRun(samples=6000, baseline_seconds=90.0, best_seconds=59.0)
    evidence = best.evidence.model_copy(update={"predicted_run": run})
    best = best.model_copy(update={"evidence": evidence})
    lines = answer_lines(Answered(best, Path("best.yaml"), seconds=62.0))
    assert any(line.startswith("  run         1 min 30 s -> 59 s") for line in lines)
    assert any(line.startswith("  pays back   after 2 runs ") for line in lines)
    total = "in the first run: 30 s of search + 59 s, instead of 1 min 30 s"
    assert f"  pays back   {total}" in answer_lines(Answered(best, Path("best.yaml"), seconds=30.0))


def test_an_answer_says_when_its_search_has_paid_for_itself():
    best = best_config(FASTER.config, BASELINE)
    lines = answer_lines(Answered(best, Path("best.yaml"), seconds=312.0))
    paid = "after 10 min 24 s of training (the search took 5 min 12 s)"
    assert f"  pays back   {paid}" in lines, "1.5 times as fast: half a second gained a second"
    slow = best.evidence.model_copy(update={"break_even_samples": 54000})
    lines = answer_lines(
        Answered(best.model_copy(update={"evidence": slow}), Path("best.yaml"), seconds=312.0)
    )
    paid = "after 16 min 24 s of training (the search took 5 min 12 s)"
    assert f"  pays back   {paid}" in lines, "180 s more to start"
    kept = answer_lines(Answered(best_config(BASELINE, BASELINE), Path("b.yaml"), seconds=9.0))
    assert not [line for line in kept if "pays back" in line]


@pytest.mark.parametrize("is_script", [True, False])
def test_a_learning_rate_that_stayed_beside_another_batch_is_told(is_script):
    best = best_config(FASTER.config, BASELINE)
    digest = {"arguments_sha256": "0" * 64 if is_script else None}
    best = best.model_copy(update={"provenance": best.provenance.model_copy(update=digest)})
    said = dict(facts(best))["learning rate"]
    assert said.startswith("unchanged; batch 16 -> 64")
    assert ("--lr-scaling" in said) is not is_script
    scaled = best.model_copy(update={"lr_scaling": LearningRate(rule="linear", factor=2.0)})
    assert dict(facts(scaled))["learning rate"] == "times 2; batch 16 -> 64"
    assert "learning rate" not in dict(
        facts(best_config(BASELINE.replace(num_workers=2), BASELINE))
    )


def test_settings_that_are_the_script_s_own_are_told_with_the_reason():
    own = BASELINE.replace(amp_dtype="bfloat16", num_threads=1)
    why = "the script does so itself"
    fixed = {"amp_dtype": why, "num_threads": "the script sets it itself", "compile_mode": why}
    best = best_config(own.replace(batch_size=64), own)
    lines = answer_lines(Answered(best, Path("best.yaml"), own_settings=fixed))
    told = [line for line in lines if line.startswith("  not varied")]
    assert told == [
        f"  not varied  amp_dtype=bfloat16, compile_mode=null: {why}",
        "  not varied  num_threads=1: the script sets it itself",
    ]


def test_the_answer_of_a_script_ends_with_the_command_that_trains_with_it():
    script = ScriptOptions(("--epochs", "90", "--token", "planted"))
    best = best_config(FASTER.config, BASELINE)
    found = best.provenance.model_copy(update={"model": "train.py"})
    best = best.model_copy(update={"provenance": found})
    lines = answer_lines(Answered(best, Path("best.yaml"), script=script))
    assert lines[-1] == ("  use it      autotune run best.yaml train.py --epochs 90 --token '***'")


def test_a_setting_that_only_workers_use_is_told_with_the_one_value_that_it_had():
    searched = Searched(
        configurations=8, measured=3, tried={}, never_varied=("num_threads", "prefetch_factor")
    )
    changed = {"num_workers": 2, "prefetch_factor": 4}
    said = dict(searched_facts(searched, changed))["not tried"]
    assert said == "other values of num_threads, prefetch_factor (always 4 where it was used)"


def test_nothing_feasible_counts_each_reason():
    lines = answer_lines(NothingFeasible({"out of host memory": 3}))
    assert "  3 x out of host memory" in lines


def test_text_that_reaches_the_terminal_has_no_escape_sequences(capsys):
    from autotune.console.progress import to_stderr

    to_stderr(TOO_LARGE.verdict.reason)
    assert capsys.readouterr().err == "out of host memory: full\n"


def test_programs_read_the_answer_as_one_json_object_with_a_schema_version():
    faster = json.loads(result(Answered(best_config(FASTER.config, BASELINE), Path("b.yaml"))))
    assert (faster["schema_version"], faster["answer"]) == (1, "faster")
    assert faster["best"]["config"]["batch_size"] == 64
    none = json.loads(result(NothingFeasible({"why": 1})))
    assert (none["answer"], none["reasons"]) == ("none", {"why": 1})
