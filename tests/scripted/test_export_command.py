"""An answer that goes on: exported by a command, or edited by hand after the search."""

import json
import os
import shutil
from pathlib import Path

import pytest

import autotune
from answers import on_cpu, on_gpu
from autotune.configuration.best_config import read_best, write_best
from autotune.configuration.evidence import LearningRate
from autotune.configuration.mismatch import digests_of_arguments, other_arguments
from autotune.export import FORMATS, export
from command_line import command, told
from covering import covers
from factories import best_config, edited, found_here, written
from scripted_runner import ScriptedRunner, at, events_of, unstored_in
from tuned_scripts import BASELINE, SCRIPTS

USAGE = 2


@pytest.fixture
def call(monkeypatch, tmp_path):
    """The command in a folder with gpu.yaml and cpu.yaml: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    write_best(on_gpu(), tmp_path / "gpu.yaml")
    write_best(on_cpu(), tmp_path / "cpu.yaml")

    def call(*arguments):
        done = command("export", *arguments)
        assert "Traceback" not in done.err
        assert "internal error" not in done.err
        return done.code, done.out, done.err

    return call


@pytest.mark.parametrize("form", FORMATS)
def test_a_form_is_on_stdout_and_what_it_leaves_out_on_stderr(call, form):
    exported = export(on_gpu(), form)
    code, out, err = call("gpu.yaml", "--format", form)
    assert (code, out) == (0, exported.text)
    assert all(way in err for way in exported.dropped.values())
    assert bool(err) == bool(exported.dropped)


@pytest.mark.parametrize("form", FORMATS)
def test_strict_writes_nothing_that_is_not_whole(call, form, tmp_path):
    code, out, err = call("gpu.yaml", "--format", form, "--strict", "--out", "new")
    if export(on_gpu(), form).dropped:
        assert (code, out) == (USAGE, "")
        assert f"--format {form} cannot carry" in err
    else:
        assert (code, err) == (0, "")
    assert (tmp_path / "new").exists() == (code == 0)


def test_a_file_is_written_in_place_of_stdout(call, tmp_path):
    code, out, _ = call("cpu.yaml", "--format", "json", "--out", "settings.json")
    assert (code, out) == (0, "")
    assert json.loads((tmp_path / "settings.json").read_text()) == on_cpu().config


@covers("X4")
def test_an_existing_file_is_overwritten_only_by_force(call, tmp_path):
    mine = written(tmp_path, "mine", "mine.json")
    code, _, err = call("cpu.yaml", "--format", "json", "--out", "mine.json")
    assert (code, mine.read_text()) == (USAGE, "mine")
    assert "mine.json exists" in err
    assert "--force" in err
    assert call("cpu.yaml", "--format", "json", "--out", "mine.json", "--force")[0] == 0
    assert json.loads(mine.read_text()) == on_cpu().config


@covers("X4")
@pytest.mark.parametrize("force", [[], ["--force"]])
@pytest.mark.parametrize("target", ["mine.json", "absent.json"])
def test_nothing_is_written_through_a_symbolic_link(call, tmp_path, target, force):
    written(tmp_path, "mine", "mine.json")
    (tmp_path / "link.json").symlink_to(target)
    code, _, err = call("cpu.yaml", "--format", "json", "--out", "link.json", *force)
    assert code == USAGE
    assert "link.json is a symbolic link" in err
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "mine.json").read_text() == "mine"
    assert not (tmp_path / "absent.json").exists()


def test_a_path_that_is_no_file_is_not_replaced_even_by_force(call, tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        code, _, err = call("cpu.yaml", "--format", "json", "--out", name, "--force")
        assert code == USAGE
        assert f"{name} is not a regular file" in err


def test_a_folder_in_which_nobody_can_write_is_named(call):
    code, _, err = call("cpu.yaml", "--format", "json", "--out", "/proc/autotune.json")
    assert code == USAGE
    assert "/proc/autotune.json cannot be written: " in err


def test_an_unknown_format_is_refused_with_those_that_exist(call):
    code, _, err = call("cpu.yaml", "--format", "keras")
    assert code == USAGE
    assert "'keras' is not one of" in err
    assert "lightning" in err


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("absent.yaml", None, "absent.yaml: cannot be read (No such file or directory)"),
        (".", None, ".: cannot be read (Is a directory)"),
        ("empty.yaml", "", "empty.yaml:1:1: the top level is empty"),
        ("rubbish.yaml", "autotune: [", "rubbish.yaml:1:"),
        ("binary.yaml", "\x00\x01", "binary.yaml:1:1: not valid YAML: character U+0000"),
    ],
)
def test_a_file_that_is_no_answer_is_refused_with_its_place(call, tmp_path, name, text, words):
    if text is not None:
        written(tmp_path, text, name)
    code, out, err = call(name, "--format", "json")
    assert (code, out) == (USAGE, "")
    assert words in err


FASTER = BASELINE.replace(num_workers=2, amp_dtype="bfloat16")


@pytest.fixture
def found(tmp_path):
    """An answer of a script in this folder, of this machine, whose loss judged it."""
    script = Path(shutil.copy(SCRIPTS / "plain_loop.py", tmp_path / "train.py"))
    best = found_here(best_config(FASTER, BASELINE), script)
    accuracy = best.constraints.accuracy.model_copy(update={"compared_by": "training loss"})
    constraints = best.constraints.model_copy(update={"accuracy": accuracy})
    best = best.model_copy(update={"constraints": constraints})
    provenance = best.provenance.model_copy(update=digests_of_arguments(best, []))
    return best.model_copy(update={"provenance": provenance})


def saved(folder, best):
    write_best(best, folder / "best.yaml")
    return folder / "best.yaml"


def shown(folder, best, *words):
    """Return the command that `autotune run` would execute, and what it says."""
    path = saved(folder, best)
    done = told(folder, "run", "--print-command", *words, path, "train.py")
    return done.out + done.err


def test_a_search_notes_the_settings_that_it_measured(tmp_path):
    def timed(config, phase):
        return at(200 if config["num_workers"] else 100)

    runner = ScriptedRunner(measure=timed, quality=lambda *_: 1.0)
    events_of(unstored_in(tmp_path, "num_workers: [0, 2]\n", trials=2), runner)
    best = read_best(tmp_path / "best.yaml")
    assert best.evidence.changed["num_workers"] == 2
    assert not best.edits


def test_an_untouched_file_is_applied_whole(tmp_path, found):
    lines = shown(tmp_path, edited(found))
    assert "amp_dtype=bfloat16" in lines.partition("applying: ")[2], lines
    assert "measured" not in lines


def test_arithmetic_that_was_not_measured_is_left_out_of_a_run(tmp_path, found):
    changed = edited(found, optimizer_impl="fused")
    lines = shown(tmp_path, changed)
    assert "optimizer_impl: null was measured, fused is in the file" in lines
    assert "optimizer_impl=fused was edited; null was measured: applying only settings" in lines
    left_out = lines.partition("not applying: ")[2]
    assert "optimizer_impl=fused" in left_out
    assert "amp_dtype=bfloat16" in left_out, "judged together with other settings"
    lines = shown(tmp_path, changed, "--allow-numerics")
    assert "optimizer_impl=fused" in lines.partition("applying: ")[2], lines


def test_an_exact_setting_that_was_edited_is_applied_and_said(tmp_path, found):
    lines = shown(tmp_path, edited(found, num_workers=1))
    assert "num_workers: 2 was measured, 1 is in the file" in lines
    applied = lines.partition("applying: ")[2]
    assert "num_workers=1" in applied
    assert "amp_dtype=bfloat16" in applied


def test_python_hears_of_it_once_and_strict_refuses(tmp_path, found):
    path = saved(tmp_path, edited(found, batch_size=64))
    with pytest.warns(autotune.MismatchWarning, match="batch_size: 16 was measured, 64 is in the"):
        best = autotune.load(path)
    assert best.config["batch_size"] == 64
    told = best.explain().splitlines()
    assert told[0].endswith(": num_workers=2, prefetch_factor=2, amp_dtype=bfloat16")
    assert repr(best).endswith(", edited since>")
    assert told[-1].endswith("since the search: batch_size: 16 was measured, 64 is in the file")
    with pytest.raises(autotune.MismatchError, match="batch_size: 16 was measured"):
        autotune.load(path, strict=True)


def test_a_learning_rate_that_was_scaled_for_another_batch_is_named(tmp_path, found):
    scaled = found.model_copy(update={"lr_scaling": LearningRate(rule="linear", factor=2.0)})
    with pytest.warns(autotune.MismatchWarning, match="the factor 2 belongs to 16 samples a step"):
        autotune.load(saved(tmp_path, edited(scaled, batch_size=64)))


def test_a_report_of_the_file_shows_what_was_measured(tmp_path, found):
    path = saved(tmp_path, edited(found, amp_dtype=None))
    told = command("report", path)
    assert told.code == 0, told.err
    assert "amp_dtype=bfloat16" in told.out
    assert "Edited since the search, and not measured: amp_dtype: bfloat16" in told.out


def test_an_export_names_what_was_edited(tmp_path, found):
    done = command("export", saved(tmp_path, edited(found, batch_size=64)), "--format", "env")
    line = "batch_size: 16 was measured, 64 is in the file"
    assert f"autotune: edited since the search: {line}" in done.err
    assert f"# edited since, and not measured: {line}" in done.out


def test_an_edit_does_not_change_which_arguments_carry_settings(tmp_path, found):
    maps = found.provenance.model_copy(update={"maps": ("num_workers=--epochs",)})
    best = found.model_copy(update={"provenance": maps})
    digests = digests_of_arguments(best, ["--epochs", "3"])
    best = best.model_copy(update={"provenance": maps.model_copy(update=digests)})
    changed = edited(best, num_workers=0, prefetch_factor=None)
    assert other_arguments(changed, ["--epochs", "4"]) is None


def test_a_kept_baseline_that_was_edited_is_no_longer_kept_silently(tmp_path, found):
    kept = found.model_copy(update={"config": found.evidence.baseline.config})
    with pytest.warns(autotune.MismatchWarning, match="num_workers: 0 was measured, 4 is in the"):
        best = autotune.load(saved(tmp_path, edited(kept, num_workers=4, prefetch_factor=2)))
    assert best.explain().startswith("Keep your settings"), best.explain()


def test_faults_of_the_measured_settings_are_named_where_they_stand(tmp_path, found):
    path = saved(tmp_path, edited(found))
    text = path.read_text(encoding="utf-8")
    before, changed, after = text.partition("  changed:\n")
    after = after.replace("    num_workers: 2\n", "    num_workers: -2\n", 1)
    path.write_text(before + changed + after)
    done = command("check", str(path))
    assert done.code == USAGE
    lines = text.splitlines()
    line = lines.index("    num_workers: 2", lines.index("  changed:")) + 1
    assert f"best.yaml:{line}:" in done.err, done.err
