"""The answer in other forms."""

from __future__ import annotations

import json
import subprocess

import pytest

from autotune.best import LearningRate
from autotune.config import TrainingConfig
from autotune.export import FORMATS, export
from factories import best_config

CONFIG = TrainingConfig.of({"batch_size": 64, "num_workers": 2, "num_threads": 3})
BEST = best_config(CONFIG, TrainingConfig.of({}))


SCALED = BEST.model_copy(update={"lr_scaling": LearningRate(rule="linear", factor=4.0)})


def test_a_learning_rate_that_is_not_model_pys_own_is_carried_or_named() -> None:
    names: dict[str, object] = {}
    exec(export(SCALED, "python").text, names)
    assert names["LR_FACTOR"] == 4
    assert json.loads(export(SCALED, "json").text) == {**CONFIG.as_dict(), "lr_factor": 4}
    assert "lr_factor" in export(SCALED, "env").dropped
    assert "lr_factor" not in export(BEST, "env").dropped


@pytest.mark.parametrize("form", ["json", "python"])
def test_a_form_that_carries_every_setting_drops_none(form: str) -> None:
    assert export(BEST, form).dropped == ()


def test_json_reads_back_as_the_same_settings() -> None:
    assert json.loads(export(BEST, "json").text) == CONFIG.as_dict()


def test_python_runs_and_gives_the_same_settings() -> None:
    names: dict[str, object] = {}
    exec(export(BEST, "python").text, names)
    assert names["SETTINGS"] == CONFIG.as_dict()


def test_a_shell_reads_the_environment_that_was_exported() -> None:
    script = export(BEST, "env").text + 'echo "$OMP_NUM_THREADS $TORCH_COMPILE_DISABLE"'
    run = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "3 1\n"


def test_what_a_process_must_be_started_with_is_exported() -> None:
    best = best_config(CONFIG.replace(omp_wait_policy="passive"), TrainingConfig.of({}))
    script = export(best, "env").text + 'echo "$OMP_WAIT_POLICY"'
    run = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "PASSIVE\n"
    assert "omp_wait_policy" not in export(best, "env").dropped


def test_the_environment_names_the_settings_that_it_cannot_carry() -> None:
    dropped = export(BEST, "env").dropped
    assert {"batch_size", "num_workers"} <= set(dropped)
    assert "num_threads" not in dropped


def test_the_command_line_offers_exactly_the_formats_that_exist() -> None:
    from autotune.cli import cli

    command = cli.commands["export"]
    (choice,) = [option.type for option in command.params if option.name == "form"]
    assert sorted(choice.choices) == sorted(FORMATS)  # type: ignore[attr-defined]
