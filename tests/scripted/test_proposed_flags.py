"""Flags and keys of config files are proposed as maps; places that a script writes are named."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.calling.arguments import Edit, with_copies
from autotune.calling.flag import Flag, flag_from
from autotune.configuration.script import RateFlag, ScriptOptions
from autotune.console.lines import plan_lines
from autotune.searching.run.events import Planned
from autotune.values.errors import UsageError
from autotune.values.outcome import ScriptFlag, Surroundings
from scripted_runner import SEEN, ScriptedRunner, at, batch_of, events_of, unstored_in
from tuned_scripts import SCRIPTS, run

SPACE = "batch_size: [16, 64]\nnum_workers: [0, 2]\n"
OPEN = ScriptFlag(("--batch-size",), None, is_open=True)
BATCH, EPOCHS = ScriptFlag(("-b", "--batch-size"), 16), ScriptFlag(("--epochs",), 3)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The folder in which the script is searched."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def planned(folder, around, script, space=SPACE):
    """The plan of a search of a script with these flags, and the runner that was asked."""
    observed = replace(SEEN, surroundings=around)
    rates = lambda config, _: at(100.0 * batch_of(config))  # noqa: E731
    runner = ScriptedRunner(measure=rates, observed=observed)
    events = events_of(unstored_in(folder, space, script=script, trials=8), runner)
    assert isinstance(events[0], Planned)
    return events[0], runner


def maps(plan):
    flags = plan.context.traits.script.flags
    return [f"{flag.knob}={flag.name}" for flag in flags]


JUDGED = ScriptOptions(("--epochs", "3"), metric="acc (.*)")


def test_a_flag_without_doubt_is_searched(tmp_path):
    plan, runner = planned(tmp_path, Surroundings((BATCH, EPOCHS)), JUDGED)
    assert maps(plan) == ["batch_size=--batch-size"]
    note = "searching batch_size through the script's --batch-size (--no-map prevents it)"
    assert note in plan.context.space.notes
    calls = [job.script.arguments for job in runner.jobs if job.script and job.config]
    assert ("--epochs", "3", "--batch-size", "64") in calls


def with_rates(folder, flags, script=JUDGED, rates=(0.1, 0.01)):
    """A search whose learning rate follows the batch, of a script with these flags and rates."""
    observed = replace(SEEN, surroundings=Surroundings(flags), learning_rates=rates)
    measure = lambda config, _: at(100.0 * batch_of(config))  # noqa: E731
    runner = ScriptedRunner(measure=measure, observed=observed)
    options = unstored_in(folder, SPACE, script=script, trials=8, lr_scaling="linear")
    return events_of(options, runner)[-1], runner


RATE = ScriptFlag(("--lr",), 0.1)


@pytest.mark.parametrize(
    ("arguments", "flags", "given"),
    [
        ((), (BATCH, RATE, ScriptFlag(("--min-lr",), 0.1), ScriptFlag(("--lr-decay",), 0.1)), None),
        (("--learning_rate=1e-1",), (BATCH,), None),
        (("optim.lr=0.1",), (BATCH,), None),
        (("--lr", "0.2"), (BATCH, ScriptFlag(("--lr",), 0.2)), "lr=--lr"),
    ],
)
def test_the_learning_rate_follows_the_batch_through_its_flag(tmp_path, arguments, flags, given):
    rate = RateFlag(flag_from(given)) if given else None
    answer, runner = with_rates(tmp_path, flags, replace(JUDGED, arguments=arguments, rate=rate))
    scripts = [job.script for job in runner.jobs if job.script and job.config]
    large = [one for one in scripts if "64" in one.arguments]
    assert large
    for one in large:
        value = 0.8 if given else 0.4
        assert any(f"{value:g}" in word for word in one.arguments), one.arguments
        assert one.learning_rates == pytest.approx((0.4, 0.04))
    others = [one for one in scripts if "64" not in one.arguments]
    assert all(one.learning_rates == () for one in others)
    scaling = answer.best.lr_scaling
    assert (scaling.rule, scaling.factor) == ("linear", 4.0)
    assert (scaling.flag or "").strip("-=") in ("lr", "learning_rate", "optim.lr")
    assert scaling.value == (0.2 if given else 0.1)


@pytest.mark.parametrize(
    ("flags", "rates", "said"),
    [
        ((BATCH,), (0.1,), "no flag of the script has the learning rate of its optimizer (0.1)"),
        ((BATCH, RATE), (0.3,), "no flag of the script has"),
        ((RATE, ScriptFlag(("--base-lr",), 0.1)), (0.1,), "--lr and --base-lr both have the"),
    ],
)
def test_a_learning_rate_without_a_certain_flag_is_an_error_that_says_how(
    tmp_path, flags, rates, said
):
    with pytest.raises(UsageError, match="--map lr=--FLAG") as raised:
        with_rates(tmp_path, flags, rates=rates)
    assert said in str(raised.value)


def test_a_learning_rate_that_is_no_number_is_refused_before_anything_is_timed(tmp_path):
    script = replace(JUDGED, arguments=("--lr", "auto"), rate=RateFlag(flag_from("lr=--lr")))
    runner = ScriptedRunner(observed=replace(SEEN, learning_rates=(0.1,)))
    options = unstored_in(tmp_path, SPACE, script=script, lr_scaling="linear")
    said = r"--lr auto: .* has to be a number\. Give one, or use a result of a search without it\."
    with pytest.raises(UsageError, match=said):
        events_of(options, runner)
    assert not runner.batches("baseline")


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
        ((BATCH,), ScriptOptions(()), "it could go through the script's --batch-size, but"),
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
    assert plan.context.traits.script.flags == preset[:1]
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


def test_the_first_screen_says_what_is_run_and_what_that_does(tmp_path):
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


YAML = "_base_: base.yaml\nseed: 16\ntrain:\n  batch_size: 16  # small\nval: {batch_size: 100}\n"
TWICE = "train: {batch_size: 16}\nval: {batch_size: 16}\n"
ALIAS = "size: &size 16\ntrain: {batch_size: *size}\n"
ARGS = json.dumps({"per_device_train_batch_size": 16, "lr": 16.0, "fp16": True})


def found_in(folder, *arguments, flags=(), space=SPACE):
    """The plan of a search whose script trains with 16 samples a step, and its maps."""
    script = replace(JUDGED, arguments=arguments)
    plan, _ = planned(folder, Surroundings(flags), script, space)
    return plan, [one.removeprefix("batch_size=") for one in maps(plan)]


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
    assert found_in(folder, *arguments)[1] == wanted


@pytest.mark.parametrize(
    ("value", "found"),
    [(16, "--batch-size"), (32, "--config:train.batch_size")],
    ids=["the flag's", "a default that the file overrides"],
)
def test_a_flag_that_has_the_value_comes_before_a_file(folder, value, found):
    (folder / "my.yaml").write_text(YAML)
    flag = ScriptFlag(("--batch-size",), value)
    assert found_in(folder, "--config", "my.yaml", flags=(flag,))[1] == [found]


def test_of_two_keys_with_the_value_none_is_taken_and_both_are_named(folder):
    (folder / "my.yaml").write_text(TWICE)
    plan, found = found_in(folder, "--config", "my.yaml")
    assert found == []
    assert (
        "--config:train.batch_size and --config:val.batch_size are both 16: choose one with --map "
        "batch_size=FLAG"
    ) in "\n".join(plan_lines(plan.context))


def test_of_two_files_of_a_flag_the_later_one_is_searched_and_the_other_stays(folder):
    (folder / "base.yaml").write_text(YAML)
    (folder / "my.yaml").write_text("epochs: 3\n")
    words = ("--config", "base.yaml", "--config", "my.yaml")
    assert found_in(folder, *words)[1] == []
    (folder / "my.yaml").write_text(YAML)
    (folder / "train.py").write_text("import sys\nprint(sys.argv[1:])\n")
    way = ("--map", "batch_size=--config:train.batch_size")
    done = run(folder, *way, "train.py", *words, batch_size=64)
    assert "['--config', 'base.yaml', '--config', '" in done.stdout
    assert "'--config', 'my.yaml'" not in done.stdout


def test_files_of_a_flag_that_the_space_varies_are_not_mapped(folder):
    (folder / "my.yaml").write_text(YAML)
    flags = "flags:\n  --config: {values: [my.yaml, other.yaml], effect: exact}\n"
    assert found_in(folder, "--config", "my.yaml", space=SPACE + flags)[1] == []


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
