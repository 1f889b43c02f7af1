"""Flags that a script has are proposed as maps, and places that it writes are named."""

from dataclasses import replace

import pytest

from autotune.calling.flag import Flag, flag_from
from autotune.configuration.script import ScriptOptions
from autotune.console.plan_lines import plan_lines
from autotune.searching.run.events import Planned
from autotune.values.errors import UsageError
from autotune.values.outcome import ScriptFlag, Surroundings
from scripted_runner import SEEN, ScriptedRunner, at, batch_of, events_of, unstored_in

SPACE = "batch_size: [16, 64]\nnum_workers: [0, 2]\n"
OPEN = ScriptFlag(("--batch-size",), None, is_open=True)
BATCH, EPOCHS = ScriptFlag(("-b", "--batch-size"), 16), ScriptFlag(("--epochs",), 3)


def planned(folder, around, script, space=SPACE):
    """The plan of a search of a script with these flags, and the runner that was asked."""
    observed = replace(SEEN, surroundings=around)
    rates = lambda config, _: at(100.0 * batch_of(config))  # noqa: E731
    runner = ScriptedRunner(measure=rates, observed=observed)
    events = events_of(unstored_in(folder, space, script=script, trials=8), runner)
    assert isinstance(events[0], Planned)
    return events[0], runner


def maps(plan):
    script = plan.context.options.workload.script
    return [f"{flag.knob}={flag.name}" for flag in script.flags]


JUDGED = ScriptOptions(("--epochs", "3"), metric="acc (.*)")


def test_a_flag_without_doubt_is_searched(tmp_path):
    plan, runner = planned(tmp_path, Surroundings((BATCH, EPOCHS)), JUDGED)
    assert maps(plan) == ["batch_size=--batch-size"]
    note = "searching batch_size through the script's --batch-size (--no-map prevents it)"
    assert note in plan.context.space.notes
    calls = [job.script.arguments for job in runner.jobs if job.script and job.config]
    assert ("--epochs", "3", "--batch-size", "64") in calls


@pytest.mark.parametrize(
    ("arguments", "flags", "found"),
    [
        # As of a script with `--batch-size` whose default is None, which chooses one itself.
        ((), (OPEN,), ["batch_size=--batch-size"]),
        ((), (OPEN, ScriptFlag(("--bs",), 16)), ["batch_size=--bs"]),
        (("-b", "16"), (BATCH,), ["batch_size=-b"]),
        # Read by the script itself.
        (("--batch_size=16",), (), ["batch_size=--batch_size="]),
        (("--train.batch_size", "16"), (), ["batch_size=--train.batch_size"]),
        (("batch=16",), (), ["batch_size=batch"]),
        (("--batch_size=32",), (), []),
        (("--batch_size",), (), []),
        (("batch_size", "16"), (), []),
        (("--batch_size=16", "--bs=16"), (), []),
    ],
)
def test_a_flag_is_found_by_its_name_and_number_and_spelled_as_the_arguments_spell_it(
    tmp_path, arguments, flags, found
):
    script = replace(JUDGED, arguments=arguments)
    plan, _ = planned(tmp_path, Surroundings(flags), script)
    assert maps(plan) == found


@pytest.mark.parametrize(
    ("flags", "script", "note"),
    [
        ((BATCH,), replace(JUDGED, proposes=False), None),
        ((BATCH,), ScriptOptions(()), "this script has --batch-size for it, but"),
        (
            (BATCH, ScriptFlag(("--bs",), 16)),
            JUDGED,
            "--batch-size and --bs are both 16: choose one with --map batch_size=FLAG",
        ),
        ((ScriptFlag(("--bs",), 8),), JUDGED, "--bs is 8, but training runs with batch_size=16"),
        ((ScriptFlag(("--val-batch-size",), 16),), JUDGED, None),
        ((ScriptFlag(("--batch-size",), None),), JUDGED, None),
        (
            (OPEN, ScriptFlag(("--bs",), None, is_open=True)),
            JUDGED,
            "--batch-size and --bs both have no value: choose one with --map batch_size=FLAG",
        ),
    ],
)
def test_a_flag_of_which_there_is_doubt_is_left(tmp_path, flags, script, note):
    plan, _ = planned(tmp_path, Surroundings(flags), script)
    assert maps(plan) == []
    said = [one for one in plan.context.space.notes if "--b" in one]
    assert len(said) == (note is not None)
    assert note is None or note in said[0]


def test_a_flag_of_a_preset_that_the_script_lacks_is_left_out(tmp_path):
    around = Surroundings((BATCH,), ("--",))
    preset = tuple(map(flag_from, ("batch_size=--batch-size", "accumulation_steps=--grad-accum")))
    plan, _ = planned(tmp_path, around, replace(JUDGED, preset=preset, proposes=False))
    assert plan.context.options.workload.script.flags == preset[:1]
    text = "\n".join(plan_lines(plan.context))
    assert "ignoring --map accumulation_steps=--grad-accum of the preset: this script has" in text


def test_a_map_of_the_users_own_comes_before_a_proposal(tmp_path):
    script = replace(JUDGED, flags=(Flag("batch_size", "--size"),))
    plan, _ = planned(tmp_path, Surroundings((BATCH, ScriptFlag(("--size",), 16))), script)
    assert maps(plan) == ["batch_size=--size"]


@pytest.mark.parametrize(
    ("around", "name", "said"),
    [
        (
            Surroundings((BATCH,), ("--",)),
            "--batchsize",
            "--map batch_size=--batchsize: the script has no --batchsize. "
            "Did you mean '--batch-size'?",
        ),
        (
            Surroundings((ScriptFlag(("train.bs",), 16),), ("=",)),
            "tain.bs",
            "the script has no tain.bs. Did you mean 'train.bs'?",
        ),
        (Surroundings((BATCH,), ("--",)), "--batch", None),
        (Surroundings((BATCH,), ()), "--other", None),
        (Surroundings((BATCH,), ("--",)), "env:SIZE", None),
        (Surroundings((ScriptFlag(("train.bs",), 16),), ("=",)), "+extra.bs", None),
    ],
)
def test_a_flag_that_the_script_does_not_know_is_refused(tmp_path, around, name, said):
    script = replace(JUDGED, flags=(Flag("batch_size", name),))
    if said is None:
        planned(tmp_path, around, script)
        return
    with pytest.raises(UsageError) as error:
        planned(tmp_path, around, script)
    assert said in str(error.value)


def test_a_flag_of_the_space_that_the_script_does_not_know_is_refused(tmp_path):
    space = "flags:\n  --epoks: {values: [1, 2], effect: exact}\n"
    with pytest.raises(UsageError, match=r"space.yaml:4:21: the script has no --epoks. Did you"):
        planned(tmp_path, Surroundings((EPOCHS,), ("--",)), JUDGED, SPACE + space)


def test_the_first_screen_says_what_is_run_and_what_that_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = str(tmp_path)
    around = Surroundings(
        folders=(here, f"{here}/runs/a", f"{here}/runs", "/srv/out"),
        overwritten=tuple(f"{here}/{n}.pt" for n in range(7)),
        deleted=(f"{here}/old",),
        trackers=("wandb", "MLflow", "Comet", "Neptune", "ClearML"),
    )
    arguments = ("--token", "planted-hunter2", "--key=planted-hunter2", "--name", "a b")
    plan, _ = planned(tmp_path, around, ScriptOptions(arguments))
    text = "\n".join(plan_lines(plan.context))
    assert "planted" not in text
    assert "model.py --token '***' '--key=***' --name 'a b'" in text
    assert "starts of the script, about 3 s each with your settings\n" in text, text
    assert "write to: the current directory, runs, /srv/out (later" in text
    assert "each run overwrites: 0.pt, 1.pt, 2.pt, 3.pt, 4.pt and 2 more" in text
    assert "each run deletes: old" in text
    assert "wandb is switched off" in text
    assert "MLflow writes to the trials' directories" in text
    assert "Comet is off (COMET_AUTO_LOG_DISABLE=1)" in text
    assert "Neptune is offline (NEPTUNE_MODE)" in text
    assert "ClearML is offline (CLEARML_OFFLINE_MODE=1)" in text
    assert "use --temp-workdir to" in text
