"""Settings of another machine or without a way to the script are warned of, or refused."""

import sys

import pytest

from autotune.configuration.best_config import write_best
from children import autotune
from covering import covers
from factories import best_config, found_here, written
from tuned_scripts import BASELINE, run


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("missing.py",), 2, "missing.py does not exist"),
        ((), 2, "Name the script to run"),
        (("--map", "batchsize=--bs", "x.py"), 2, "Did you mean 'batch_size'?"),
        (("--map", "batch_size", "x.py"), 2, "such as batch_size=--batch-size"),
        (("--nonsense", "x.py"), 2, "No such option"),
    ],
)
def test_settings_that_cannot_be_used_are_an_error_before_anything_runs(
    tmp_path, arguments, code, message
):
    (tmp_path / "x.py").write_text("print('ran')")
    done = run(tmp_path, *arguments)
    assert done.returncode == code
    assert message in done.stderr
    assert "ran" not in done.stdout


def test_a_missing_best_yaml_is_looked_for_in_the_studies(tmp_path):
    (tmp_path / "studies" / "train").mkdir(parents=True)
    written(tmp_path / "studies" / "train", "", "best.yaml")
    done = autotune(tmp_path, "run", "best.yaml", written(tmp_path, "print('ran')\n", "train.py"))
    assert done.returncode == 2
    assert "Name a readable file, such as studies/train/best.yaml.\n" in done.stderr


@covers("C12")
def test_another_machine_is_warned_of_and_the_script_runs(tmp_path):
    done = run(tmp_path, written(tmp_path, "print('ran')\n", "train.py"))
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    assert "best.yaml was made for something else:\n  CPU: Test CPU in the file, " in done.stderr


@covers("C12")
def test_strict_refuses_another_driver_and_another_state_of_the_script(tmp_path):
    script = written(tmp_path, "print('ran')\n", "train.py")
    other = written(tmp_path, "print('ran')\n", "other.py")
    found = found_here(best_config(BASELINE, BASELINE), script)
    python = f"{sys.version_info.major}.{sys.version_info.minor}.99"

    def strict(path, **machine):
        there = found.machine.model_copy(update={"python": python, **machine})
        # From another folder than the search, so that the name alone says which script it was.
        source = found.provenance.model_copy(update={"model": "src/train.py"})
        changes = {"machine": there, "provenance": source}
        write_best(found.model_copy(update=changes), tmp_path / "best.yaml")
        return autotune(tmp_path, "run", "best.yaml", "--strict", path)

    fine = strict(script)
    assert (fine.returncode, fine.stdout) == (0, "ran\n"), fine.stderr
    driven = strict(script, driver="12.34")
    assert (driven.returncode, driven.stdout) == (6, "")
    assert "driver: 12.34 in the file, " in driven.stderr
    script.write_text("print('ran otherwise')\n")
    changed = strict(script)
    assert (changed.returncode, changed.stdout) == (6, "")
    assert "train.py: changed since the search" in changed.stderr
    assert strict(other).stdout == "ran\n", "nobody measured this one"


def test_strict_refuses_what_has_no_way_to_the_script(tmp_path):
    script = written(tmp_path, "print('ran')\n", "train.py")
    larger = best_config(BASELINE.replace(batch_size=512), BASELINE)
    write_best(found_here(larger, script), tmp_path / "best.yaml")
    refused = autotune(tmp_path, "run", "best.yaml", "--strict", script)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "batch_size=512: needs --map batch_size=--FLAG." in refused.stderr
    mapped = ("--strict", "--map", "batch_size=--batch-size")
    assert autotune(tmp_path, "run", "best.yaml", *mapped, script).stdout == "ran\n"
