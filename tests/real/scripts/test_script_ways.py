"""A setting reaches a script in the way that the script takes it; the user's files stay as is."""

import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

import pytest

from autotune.calling.flag import Flag, flag_from, preset_maps
from autotune.configuration.job import Job, Measure, Observe
from autotune.configuration.script import ScriptOptions, with_flags
from autotune.configuration.training_config import TrainingConfig
from autotune.export import export
from autotune.process.runner import SubprocessRunner
from autotune.values.outcome import NotApplied, Observed
from children import QUICK, autotune, measured, succeeded
from command_line import command
from factories import written
from patched_scripts import CHANGES, SHUFFLED, answer
from tiers import late
from tuned_scripts import SCRIPTS, best, report_of, run

YAML = "# mine\nname: &n run\ntrain:\n  batch_size: 16  # small\n  lr: 1e-3\n  tag: *n\n"
JSON = '{"train": {"batch_size": 16, "lr": 0.001}}\n'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the script and its config files, in which commands are given."""
    shutil.copy(SCRIPTS / "takes_settings.py", tmp_path / "train.py")
    (tmp_path / "conf.yaml").write_text(YAML)
    (tmp_path / "conf.json").write_text(JSON)
    monkeypatch.chdir(tmp_path)
    return tmp_path


WAYS = [
    ("train.batch_size", ()),
    ("train.batch_size", ("train.batch_size=8",)),
    ("--batch_size=", ("--batch_size=8",)),
    ("env:BATCH_SIZE", ()),
    ("--config:train.batch_size", ("--config", "conf.yaml")),
    ("conf.json:train.batch_size", ("conf.json",)),
]


@pytest.mark.parametrize(
    ("way", "arguments"), [way if way in WAYS[3:5] else late(*way) for way in WAYS]
)
def test_run_passes_a_batch_size_in_each_way(folder, way, arguments):
    done = run(folder, "--map", f"batch_size={way}", "train.py", *arguments, batch_size=64)
    assert done.returncode == 0, done.stderr
    assert "batch size 64," in done.stderr
    assert f"batch_size=64 (by {way})" in report_of(done)[-1]
    assert (folder / "conf.yaml").read_text() == YAML
    assert (folder / "conf.json").read_text() == JSON


@pytest.mark.parametrize(
    ("way", "arguments", "said"),
    [
        (
            "--config:train.batchsize",
            ("--config", "conf.yaml"),
            "conf.yaml has no key train.batchsize with a single value. "
            "Did you mean 'train.batch_size'?",
        ),
        ("--config:batch_size", ("--config", "conf.yaml"), "Did you mean 'train.batch_size'?"),
        ("--config:train", ("--config", "conf.yaml"), "has no key train with a single value"),
        ("--config:a", ("--config", "none.yaml"), "there is no file none.yaml"),
        ("--config:a", (), "--config is not among the script's arguments"),
        ("--config:a", ("--config", "train.py"), "cannot be read as YAML or JSON"),
        ("conf.json:train.bs", ("conf.json",), "conf.json has no key train.bs"),
    ],
)
@pytest.mark.parametrize("name", ["search", "run", "compare"])
def test_a_key_that_is_not_there_is_refused_before_the_script_runs(
    folder, name, way, arguments, said
):
    done = _given(folder, name, f"batch_size={way}", arguments)
    assert done.code == 2, done.err
    assert f"--map batch_size={way}: " in done.err
    assert said in done.err
    assert not (folder / "last.txt").exists()


def _given(folder, name, written, arguments):
    maps = ("--map", written)
    if name == "run":
        path = best(folder, batch_size=64)
        return command("run", path, *maps, "train.py", *arguments)
    if name == "compare":
        return command("compare", "train.py", best(folder, batch_size=64), *maps, "--", *arguments)
    metric = ("--metric-regex", "loss (.*)")
    return command("search", "train.py", *maps, *metric, "--", *arguments)


@pytest.mark.parametrize(("way", "arguments"), WAYS[1::2])
def test_a_trial_reads_back_a_batch_size_that_came_in_each_way(folder, way, arguments):
    measured(_trial(folder, Flag("batch_size", way), arguments))
    assert (folder / "conf.yaml").read_text() == YAML


def test_a_variable_that_the_script_does_not_read_is_not_applied(folder):
    outcome = _trial(folder, Flag("batch_size", "env:BATCHES"), ())
    assert outcome == NotApplied("batch_size", "64", "16")


def test_each_trial_may_have_a_folder_of_its_own(folder):
    (folder / "below").mkdir()
    measured(_trial(folder, Flag("batch_size", "env:BATCH_SIZE"), (), str(folder / "below")))
    assert [path.name for path in (folder / "below").glob("*/*")] == ["last.txt"]
    measured(_trial(folder, Flag("batch_size", "env:BATCH_SIZE"), (), "temporary"))
    assert not list((folder / "trial").glob("workdir-*"))
    assert not (folder / "last.txt").exists()


def _trial(folder, flag, arguments, workdir=None):
    config = TrainingConfig.of({"batch_size": 64, "num_threads": 1})
    options = ScriptOptions((*arguments, "forever"), (flag,), workdir=workdir)
    job = Job(
        Measure(QUICK),
        device="cpu",
        model_path=str(folder / "train.py"),
        script=options.call(config),
        config=config.as_dict(),
        deadline_seconds=60.0,
    )
    with SubprocessRunner(folder / "inductor") as runner:
        return runner.run(job, folder / "trial")


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("hf", ("--per_device_train_batch_size", "--gradient_accumulation_steps")),
        ("timm", ("--batch-size", "--grad-accum-steps")),
        ("lightning", ("--data.batch_size", "--trainer.accumulate_grad_batches")),
    ],
)
def test_a_preset_maps_the_batches_of_its_family(name, flags):
    config = TrainingConfig.of({"batch_size": 64, "amp_dtype": "float16"})
    size, steps = flags
    assert with_flags((), preset_maps(name, ()), config) == (size, "64", steps, "1")
    own = (Flag("batch_size", "--bs"),)
    assert with_flags((), preset_maps(name, own), config) == (steps, "1")


def test_words_that_two_values_share_stand_there_for_either_and_for_none_of_them():
    ways = [
        flag_from(f"amp_dtype:{dtype}={word}")
        for dtype in ("bfloat16", "float16")
        for word in ("--amp", f"--amp-dtype={dtype}")
    ]

    def words(dtype, *own):
        return with_flags(own, ways, TrainingConfig.of({"amp_dtype": dtype}))

    bfloat16 = words("bfloat16")
    assert bfloat16 == ("--amp", "--amp-dtype=bfloat16")
    assert words(None, *bfloat16) == ()
    assert words("float16", *bfloat16) == ("--amp", "--amp-dtype=float16")


def words_of(name, folder, script):
    """A command line of this command for the script."""
    return {
        "run": ("run", best(folder), script),
        "compare": ("compare", script, best(folder)),
        "worker": ("worker", "study", "--storage", "sqlite:///study.db", "--model", script),
    }.get(name, (name, script))


@pytest.mark.parametrize("name", ["search", "compare", "profile"])
def test_an_unknown_preset_is_refused(folder, name):
    first, *words = words_of(name, folder, "train.py")
    done = command(first, "--preset", "lightening", *words)
    assert done.code == 2
    said = "--preset 'lightening' is not one of hf, lightning, timm. Did you mean 'lightning'?"
    assert said in done.err


@pytest.fixture
def package(folder):
    """The script as a module of a package, and as an installed command's file."""
    (folder / "pack").mkdir()
    (folder / "pack" / "__init__.py").write_text("")
    shutil.move(folder / "train.py", folder / "pack" / "train.py")
    return folder


def test_a_module_is_searched_and_run_as_python_would(package):
    flags = ("--space", "loader", "--dry-run")
    done = succeeded(autotune(package, "search", *flags, "-m", "pack.train", "--", "forever"))
    assert "study pack.train in" in done.stderr
    assert "DataLoader train.py:" in done.stderr
    ran = run(package, "-m", "pack.train", num_workers=0)
    assert "batch size 16," in ran.stderr


@pytest.mark.parametrize("name", ["search", "run", "compare", "profile", "worker"])
def test_a_module_that_is_not_there_is_refused(package, name):
    def asked(module):
        first, *words = words_of(name, package, module)
        return command(first, "-m", *words)

    done = asked("pack.trian")
    assert done.code == 2
    assert "-m pack.trian: there is no module trian in pack. Did you mean 'train'?" in done.err
    assert "there is no module pak in" in asked("pak").err
    assert "the package has no __main__" in asked("pack").err


def test_no_package_is_imported_to_find_a_module(package):
    (package / "pack" / "__init__.py").write_text("open('imported', 'w')\n")
    command("run", best(package), "--print-command", "-m", "pack.train")
    assert not (package / "imported").exists()


@pytest.fixture
def tool(folder, monkeypatch):
    """The script as an installed command, `train-it`."""
    monkeypatch.setenv("PATH", str(folder / "bin"), prepend=":")
    text = (folder / "train.py").read_text()
    (folder / "bin").mkdir()
    tool = written(folder / "bin", f"#!/usr/bin/env python\n{text}", "train-it")
    tool.chmod(0o755)
    return tool


@dataclass
class Executed:
    """The options with which commands would have begun to run something."""

    options: list[Any] = field(default_factory=list)

    def __call__(self, options, *_, **__):
        self.options.append(options)
        return True

    def called(self):
        """Return the file, the module and the arguments of each script."""
        parts = [getattr(one, "workload", one) for one in self.options]
        return [(one.model_path, one.script.module, one.script.arguments) for one in parts]


@pytest.mark.parametrize("is_module", [True, False])
def test_each_command_calls_the_script_that_a_search_calls(tool, package, monkeypatch, is_module):
    executed = Executed()
    places = ("search.execute_search", "compare.execute_comparison")
    for place in (*places, "profile.execute_profile", "worker.execute_worker"):
        monkeypatch.setattr(f"autotune.commands.{place}", executed)
    flags, name = (("-m",), "pack.train") if is_module else ((), "train-it")
    for each in ("search", "compare", "profile", "worker"):
        first, *words = words_of(each, package, name)
        done = command(first, *flags, *words, "--", "forever")
        assert done.code == 0, done.err
    path = package / "pack" / "train.py" if is_module else tool
    found = [(file.resolve(), *rest) for file, *rest in executed.called()]
    assert found == [(path, name if is_module else None, ("forever",))] * 4


def test_an_installed_command_is_found_as_a_shell_finds_it(folder, tool):
    done = succeeded(autotune(folder, "search", "train-it", "--dry-run", "--", "forever"))
    assert "DataLoader train-it:" in done.stderr
    ran = run(folder, "train-it", num_workers=0)
    assert "batch size 16," in ran.stderr
    tool.write_text("#!/opt/other/bin/python3\n")
    refused = command("search", "train-it")
    assert refused.code == 2
    assert f"runs with /opt/other/bin/python3, autotune with {sys.executable}" in refused.err
    tool.write_text("#!/bin/sh\n")
    assert "train-it does not exist" in command("search", "train-it").err


def test_a_patched_script_runs_with_the_settings_of_its_result(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "train.py"
    settings = {name: value for name, (value, _) in CHANGES.items() if name != "channels_last"}
    script.write_text(SHUFFLED)
    (tmp_path / "a.diff").write_text(export(answer(**settings), "patch").text)
    subprocess.run(["git", "apply", "a.diff"], check=True)
    job = Job(Observe(), "cpu", str(script), script=ScriptOptions(()).untouched())
    with SubprocessRunner(tmp_path / "inductor") as runner:
        found = runner.run(job, tmp_path / "trial")
    assert isinstance(found, Observed), found
    assert {name: found.workload.baseline[name] for name in settings} == settings
