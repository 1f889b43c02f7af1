"""Results for programs: each command that reports something has --json, errors included."""

import json

import pytest

from autotune.cli import COMMANDS, cli
from command_line import command
from factories import written
from tuned_scripts import best

# `dashboard` and `worker` serve until they are stopped, `init` writes one file.
WITHOUT = {"dashboard", "worker", "init"}


def told(*words):
    """The exit code and the object that a command prints."""
    done = command(*words, "--json")
    data = json.loads(done.out)
    assert data.pop("schema_version") == 1
    return done.code, data


def test_each_command_that_reports_something_has_json():
    found = {
        name
        for name in COMMANDS
        for one in cli.get_command(None, name).params
        if "--json" in one.opts
    }
    assert found == COMMANDS.keys() - WITHOUT


def test_spaces_are_objects_with_the_columns_of_the_table():
    code, data = told("spaces")
    assert code == 0
    default = next(one for one in data["spaces"] if one["space"] == "default")
    assert default.keys() == {"space", "trials", "settings", "about"}
    assert isinstance(default["trials"], int)
    assert default["about"] in command("spaces").out


def test_an_export_has_its_text_and_what_it_leaves_out(tmp_path):
    path = best(tmp_path, num_workers=2, amp_dtype="bfloat16")
    code, data = told("export", path, "--format", "env")
    assert (code, data["format"], data["path"]) == (0, "env", None)
    plain = command("export", path, "--format", "env")
    assert data["text"] == plain.out
    assert all(left in plain.err for left in data["dropped"].values())
    assert "num_workers" in data["dropped"]


def test_a_valid_file_and_a_fault_are_told(tmp_path):
    path = best(tmp_path)
    assert told("check", path) == (0, {"valid": [str(path)]})
    written(tmp_path, "batch_size: {low: 1}\n", "space.yaml")
    code, data = told("check", path, tmp_path / "space.yaml")
    assert (code, data["exit_code"]) == (2, 2)
    assert data["error"].startswith(f"{tmp_path}/space.yaml:1:")


@pytest.mark.parametrize("words", [("search", "--trials", "none"), ("compare", "model.py")])
def test_a_wrong_option_is_an_object_too(words):
    code, data = told(*words)
    assert (code, data["exit_code"], set(data)) == (2, 2, {"error", "exit_code"})


def test_the_command_of_a_run_is_told_with_what_it_leaves_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, script = best(tmp_path, num_workers=2, batch_size=64), written(tmp_path, "", "train.py")
    done = command("run", "--print-command", "--json", path, script, "--json")
    data = json.loads(done.out)
    assert data["command"][-2:] == [str(script), "--json"]
    assert data["not_applied"] == {"batch_size=64": "needs --map batch_size=--FLAG"}
    assert data["environment"] == {}
