"""A batch size that a config file among a script's arguments gives is searched without a map."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.calling.config_file import Edit, with_copies
from autotune.configuration.script import ScriptOptions
from autotune.console.plan_lines import plan_lines
from autotune.searching.run.events import Planned
from autotune.values.outcome import ScriptFlag, Surroundings
from scripted_runner import SEEN, ScriptedRunner, at, events_of, unstored_in
from tuned_scripts import SCRIPTS, run

SPACE = "batch_size: [16, 64]\nnum_workers: [0, 2]\n"
YAML = "_base_: base.yaml\nseed: 16\ntrain:\n  batch_size: 16  # small\nval: {batch_size: 100}\n"
TWICE = "train: {batch_size: 16}\nval: {batch_size: 16}\n"
ALIAS = "size: &size 16\ntrain: {batch_size: *size}\n"
ARGS = json.dumps({"per_device_train_batch_size": 16, "lr": 16.0, "fp16": True})


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The folder in which the script is searched."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def planned(folder, *arguments, flags=(), space=SPACE):
    """The plan of a search whose script trains with 16 samples a step."""
    seen = replace(SEEN, surroundings=Surroundings(flags))
    script = ScriptOptions(arguments, metric="acc (.*)")
    runner = ScriptedRunner(lambda *_: at(100), observed=seen)
    begun = events_of(unstored_in(folder, space, script=script, trials=2), runner)[0]
    assert isinstance(begun, Planned)
    return begun


def maps(plan):
    script = plan.context.options.workload.script
    return [flag.name for flag in script.flags]


@pytest.mark.parametrize(
    ("name", "text", "arguments", "found"),
    [
        ("my.yaml", YAML, ("--config", "my.yaml"), ["--config:train.batch_size"]),
        ("my.yml", YAML, ("-c=my.yml", "x"), ["-c:train.batch_size"]),
        ("args.json", ARGS, ("args.json",), ["args.json:per_device_train_batch_size"]),
        ("args.json", "[" + ARGS + "]", ("x", "args.json"), None),
        ("my.yaml", YAML.replace("size: 16", "size: 32"), ("--config", "my.yaml"), []),
        ("my.yaml", ALIAS, ("--config", "my.yaml"), ["--config:train.batch_size"]),
        ("my.yaml", "train: [batch_size: 16", ("--config", "my.yaml"), []),
        ("my.txt", YAML, ("--config", "my.txt"), []),
        ("data.json", ARGS + " " * 100_000, ("data.json",), []),
        ("my.yaml", YAML, ("--config", "none.yaml"), []),
        ("my.yaml", YAML, ("config=my.yaml",), []),
        ("my.yaml", YAML, ("--", "my.yaml"), []),
        ("my.yaml", YAML.replace("train", "train args"), ("--config", "my.yaml"), []),
        ("run.json", ARGS, ("--output", "run.json"), []),
    ],
)
def test_a_key_with_the_value_that_training_was_seen_with_is_searched(
    folder, name, text, arguments, found
):
    (folder / name).write_text(text)
    wanted = ["args.json:0.per_device_train_batch_size"] if found is None else found
    assert maps(planned(folder, *arguments)) == wanted


@pytest.mark.parametrize(
    ("value", "found"),
    [(16, "--batch-size"), (32, "--config:train.batch_size")],
    ids=["the flag's", "a default that the file overrides"],
)
def test_a_flag_that_has_the_value_comes_before_a_file(folder, value, found):
    (folder / "my.yaml").write_text(YAML)
    flag = ScriptFlag(("--batch-size",), value)
    assert maps(planned(folder, "--config", "my.yaml", flags=(flag,))) == [found]


def test_of_two_keys_with_the_value_none_is_taken_and_both_are_named(folder):
    (folder / "my.yaml").write_text(TWICE)
    plan = planned(folder, "--config", "my.yaml")
    assert maps(plan) == []
    assert (
        "--config:train.batch_size and --config:val.batch_size are both 16: choose one with --map "
        "batch_size=FLAG"
    ) in "\n".join(plan_lines(plan.context))


def test_of_two_files_of_a_flag_the_later_one_is_searched_and_the_other_stays(folder):
    (folder / "base.yaml").write_text(YAML)
    (folder / "my.yaml").write_text("epochs: 3\n")
    words = ("--config", "base.yaml", "--config", "my.yaml")
    assert maps(planned(folder, *words)) == []
    (folder / "my.yaml").write_text(YAML)
    (folder / "train.py").write_text("import sys\nprint(sys.argv[1:])\n")
    way = ("--map", "batch_size=--config:train.batch_size")
    done = run(folder, *way, "train.py", *words, batch_size=64)
    assert "['--config', 'base.yaml', '--config', '" in done.stdout
    assert "'--config', 'my.yaml'" not in done.stdout


def test_files_of_a_flag_that_the_space_varies_are_not_mapped(folder):
    (folder / "my.yaml").write_text(YAML)
    flags = "flags:\n  --config: {values: [my.yaml, other.yaml], effect: exact}\n"
    assert maps(planned(folder, "--config", "my.yaml", space=SPACE + flags)) == []


def test_a_file_that_has_the_value_is_given_itself_for_what_lies_beside_it(folder):
    shutil.copy(SCRIPTS / "takes_settings.py", folder / "train.py")
    words = ("train.py", "--config", "my.yaml")
    way = ("--map", "batch_size=--config:train.batch_size")
    (folder / "my.yaml").write_text(YAML)
    for size, is_copied in ((16, False), (64, True)):
        done = run(folder, *way, *words, batch_size=size)
        assert f"batch size {size}," in done.stderr
        assert ("'--config', 'my.yaml'" not in done.stderr) is is_copied


def test_a_copy_differs_in_the_key_alone(folder):
    text = (
        "# mine\nsize: &size 16\ntrain:\n  batch_size: *size\n  lr: 1e-3  # small\n"
        "  begun: 2024-01-01\n  shuffle: yes\n  name: 'a: b'\n  seed: 010\nval: {size: *size}\n"
    )
    (folder / "my.yaml").write_text(text)
    edit = Edit("--config", "train.batch_size", 64)
    _, copy = with_copies(("--config", "my.yaml"), [edit], folder)
    assert Path(copy).read_text() == text.replace("*size", "64", 1)
