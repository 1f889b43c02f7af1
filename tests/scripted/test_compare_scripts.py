"""`autotune compare` of an unchanged script: both sides in rounds, as of a model.py."""

import json
from contextlib import chdir
from dataclasses import replace

import pytest

import scripted_runner
from autotune.commands import execute
from autotune.configuration.best_config import read_best, write_best
from autotune.configuration.training_config import TrainingConfig
from autotune.values.outcome import Inspected, ScriptFlag, Surroundings, UserError
from command_line import command
from factories import best_config, cpu_machine, edited, written
from scripted_runner import SEEN_SETTINGS as OWN
from scripted_runner import ScriptedRunner, at

NOT_FASTER, USAGE, WORKLOAD = 8, 2, 4
SEEN = replace(scripted_runner.SEEN, fixed={"channels_last": "the script does so itself"})


class Sides(ScriptedRunner):
    """A runner that times the called script by its settings, in the place of real processes."""

    def __init__(self, observed=SEEN):
        def timed(config, _):
            return at(150 if config["num_workers"] else 100)

        super().__init__(timed, observed=observed)
        self.inspected = Inspected(cpu_machine(), None)

    @property
    def timings(self):
        """The jobs of timings, which follow those that look at machine and script."""
        return [job for job in self.jobs if job.config is not None]


@pytest.fixture
def folder(tmp_path):
    """A folder with a script that must not run."""
    written(tmp_path, "raise SystemExit('ran')\n", "train.py")
    return tmp_path


def answer(folder, name="best.yaml", **changes):
    own = TrainingConfig.of(OWN)
    write_best(best_config(own.replace(**changes), own), folder / name)
    return folder / name


def compared(monkeypatch, folder, runner, *words):
    monkeypatch.setattr(execute, "SubprocessRunner", runner)
    with chdir(folder):
        return command("compare", "train.py", *words)


def test_the_configuration_takes_turns_with_the_untouched_script(folder, monkeypatch):
    answer(folder, num_workers=2)
    words = ("best.yaml", "--require-faster", "--json", "--", "--name", "a b")
    done = compared(monkeypatch, folder, runner := Sides(), *words)
    assert done.code == 0, done.err
    assert json.loads(done.out)["ratio"] == pytest.approx(1.5)
    assert "best.yaml is 1.50x as fast as your settings" in done.err
    calls = [job.script for job in runner.timings]
    assert len(calls) == 18
    assert {call.arguments for call in calls if call} == {("--name", "a b")}
    asked = {
        job.config["num_workers"]: set(job.script.asked)
        for job in runner.timings
        if job.config and job.script
    }
    assert asked[0] == set(), "nothing is changed in the untouched script"
    assert {"num_workers", "num_threads"} <= asked[2]
    assert "channels_last" not in asked[2]


@pytest.mark.parametrize(("workers", "threads", "code"), [(4, 1, 0), (0, 1, NOT_FASTER), (0, 2, 0)])
def test_settings_that_were_edited_have_no_confirmed_speed_up_and_must_be_faster(
    folder, monkeypatch, workers, threads, code
):
    """Without workers and with two threads it has the user's own settings again."""
    path = answer(folder, num_workers=2)
    changes = {"num_workers": workers, "num_threads": threads}
    write_best(edited(read_best(path), **changes, prefetch_factor=2 if workers else None), path)
    done = compared(monkeypatch, folder, Sides(), "best.yaml", "--require-faster")
    assert done.code == code, done.err
    assert f"num_workers: 2 was measured, {workers} is in the file" in done.err
    assert "previously confirmed" not in done.err


def test_two_files_are_compared_with_each_other(folder, monkeypatch):
    answer(folder, "a.yaml", num_workers=2)
    answer(folder, "b.yaml", num_threads=1)
    words = ("a.yaml", "b.yaml", "--require-faster", "--")
    done = compared(monkeypatch, folder, runner := Sides(), *words)
    assert done.code == 0, done.err
    assert "a.yaml is 1.50x as fast as b.yaml" in done.out
    assert all(job.script and job.script.asked for job in runner.timings)


def test_a_mapped_setting_reaches_the_script_by_its_flag(folder, monkeypatch):
    answer(folder, num_workers=2, batch_size=64, amp_dtype="bfloat16")
    words = ("best.yaml", "--temp-workdir", "--map", "batch_size=--bs", "--", "--bs", "16")
    done = compared(monkeypatch, folder, runner := Sides(), *words)
    assert done.code == 0, done.err
    calls = {job.script.arguments: job.script for job in runner.timings if job.script}
    assert set(calls) == {("--bs", "16"), ("--bs", "64")}
    assert {call.workdir for call in calls.values()} == {"temporary"}
    assert calls["--bs", "64"].by_flag == ("batch_size",)
    assert "amp_dtype" in calls["--bs", "64"].asked


def test_it_says_first_what_the_script_was_seen_to_write(folder, monkeypatch):
    answer(folder, num_workers=2)
    around = Surroundings(
        folders=(str(folder / "runs"), "/srv/out"),
        overwritten=(str(folder / "last.pt"),),
        deleted=(str(folder / "old"),),
        trackers=("wandb",),
    )
    runner = Sides(replace(SEEN, surroundings=around))
    done = compared(monkeypatch, folder, runner, "best.yaml", "--", "--name", "a b")
    assert done.code == 0, done.err
    said = done.err[done.err.index("command: ") :].splitlines()
    assert said[:7] == [
        "command: python train.py --name 'a b'",
        "  its first steps write to: runs, /srv/out (later checkpoints are not known)",
        "  each run overwrites: last.pt",
        "  each run deletes: old",
        "  autotune backs up files that the script changes or deletes (not large in-place edits)",
        "  use --temp-workdir to run it in temporary directories",
        "  wandb is switched off, even if the script sets a mode",
    ]
    assert "round" in said[7]


BS = ScriptFlag(("-b", "--batch-size"), 16)


def test_flags_that_the_scripts_parser_does_not_know_are_refused_before_a_timing(
    folder, monkeypatch
):
    own = TrainingConfig.of(OWN)
    asks = own.replace(batch_size=64, **{"flags.--epoks": 2})
    write_best(best_config(asks, own), folder / "best.yaml")
    runner = Sides(
        replace(SEEN, surroundings=Surroundings((BS, ScriptFlag(("--epochs",), 1)), ("--",)))
    )
    done = compared(monkeypatch, folder, runner, "best.yaml", "--map", "batch_size=--batchsize")
    assert done.code == USAGE
    assert (
        "--map batch_size=--batchsize: the script has no --batchsize. Did you mean '--batch-size'?"
        "\nbest.yaml: the script has no --epoks. Did you mean '--epochs'?"
    ) in done.err
    assert not runner.timings


@pytest.mark.parametrize("words", [(), ("--no-map",)])
def test_a_flag_of_which_there_is_no_doubt_sets_the_batch_size(folder, monkeypatch, words):
    answer(folder, batch_size=64)
    runner = Sides(replace(SEEN, surroundings=Surroundings((BS,), ("--",))))
    done = compared(monkeypatch, folder, runner, "best.yaml", "--rounds", "6", *words)
    if words:
        assert done.code == USAGE
        assert "it needs --map batch_size=--FLAG." in done.err
        return
    assert done.code == 0, done.err
    assert "setting batch_size through the script's --batch-size" in done.err
    calls = {job.script.arguments for job in runner.timings if job.script}
    assert calls == {(), ("--batch-size", "64")}


def test_settings_that_cannot_reach_the_script_are_all_named(folder, monkeypatch):
    answer(folder, batch_size=64, amp_dtype="float16", channels_last=True)
    done = compared(monkeypatch, folder, runner := Sides(), "best.yaml")
    assert done.code == USAGE
    assert "best.yaml: batch_size=64 cannot be applied to train.py: " in done.err
    assert "it needs --map batch_size=--FLAG." in done.err
    assert "best.yaml: amp_dtype=float16 cannot be applied" in done.err
    assert "channels_last=true cannot be applied to train.py: the script does so" in done.err
    assert not runner.timings


def test_a_script_that_fails_ends_the_comparison_with_its_log(folder, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    answer(folder, num_workers=2)
    failing = Sides(observed=UserError("ValueError: no", "train.py:3"))
    done = compared(monkeypatch, folder, failing, "best.yaml")
    assert done.code == WORKLOAD
    assert "train.py:3: ValueError: no" in done.err
    assert "stderr.log" in done.err
