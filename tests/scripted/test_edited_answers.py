"""A best.yaml whose settings were edited after the search claims nothing of them."""

import shutil
from pathlib import Path

import pytest

import autotune
from autotune.configuration.best_config import read_best, write_best
from autotune.configuration.evidence import LearningRate
from autotune.configuration.mismatch import digests_of_arguments, other_arguments
from command_line import command, told
from factories import best_config, edited, found_here
from scripted_runner import ScriptedRunner, at, events_of, unstored_in
from tuned_scripts import BASELINE, SCRIPTS

USAGE = 2
FASTER = BASELINE.replace(num_workers=2, amp_dtype="bfloat16")


@pytest.fixture
def found(tmp_path):
    """An answer of a script in this folder, of this machine, whose loss judged it."""
    script = Path(shutil.copy(SCRIPTS / "plain_loop.py", tmp_path / "train.py"))
    best = found_here(best_config(FASTER, BASELINE), script)
    accuracy = best.constraints.accuracy.model_copy(update={"judged_by": "training loss"})
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
    with pytest.warns(autotune.MismatchWarning, match="times 2 is for 16 samples a step"):
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
