"""Flags that a script is seen to have are proposed as maps, and places that it writes are named."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.calling.flag import Flag, flag_from
from autotune.configuration.job import Job, Measure, Observe
from autotune.configuration.script import Script, ScriptOptions
from autotune.configuration.training_config import TrainingConfig
from autotune.console.plan_lines import plan_lines
from autotune.context.script_ways import proposals, unknown_words
from autotune.process.runner import SubprocessRunner
from autotune.searching.run.events import Planned
from autotune.values.errors import UsageError
from autotune.values.outcome import Measured, Observed, ScriptFlag, Surroundings
from children import QUICK
from needs import installed
from scripted_runner import SEEN, ScriptedRunner, at, batch_of, events_of, options_in

SCRIPT = Path(__file__).parents[2] / "scripts" / "parses_flags.py"
SPACE = "batch_size: [16, 64]\nnum_workers: [0, 2]\n"
OPEN = ScriptFlag(("--batch-size",), None, is_open=True)
BATCH, EPOCHS = ScriptFlag(("-b", "--batch-size"), 16), ScriptFlag(("--epochs",), 3)


@pytest.fixture(scope="module")
def runner(folder, tmp_path_factory):
    """One warm host for all of them."""
    with SubprocessRunner(tmp_path_factory.mktemp("runner") / "inductor") as runner:
        yield runner


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the script, in which the warm host starts."""
    folder = tmp_path_factory.mktemp("folder")
    shutil.copy(SCRIPT, folder / "train.py")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


def seen(runner, folder, *arguments, script="train.py"):
    job = Job(
        Observe(),
        device="cpu",
        model_path=str(folder / script),
        script=Script(arguments),
        deadline_seconds=120.0,
    )
    outcome = runner.run(job, folder / "trial")
    assert isinstance(outcome, Observed), outcome
    return outcome.surroundings


@pytest.mark.parametrize(
    ("parser", "needed", "flag"),
    [
        ("argparse", "torch", ScriptFlag(("-b", "--batch-size"), 16)),
        ("hf", "torch", ScriptFlag(("--per_device_train_batch_size",), 16)),
        ("click", "click", ScriptFlag(("--bs",), 16)),
        ("json", "jsonargparse", ScriptFlag(("--data.batch_size",), 16)),
        ("hydra", "hydra", ScriptFlag(("train.batch_size",), 16)),
        ("tyro", "tyro", ScriptFlag(("--train.batch_size", "--train.batch-size"), 16)),
    ],
)
def test_the_flags_of_each_parser_are_seen_with_their_values(runner, folder, parser, needed, flag):
    installed(needed)
    epochs = ("train.epochs=999",) if parser == "hydra" else ("--epochs", "999")
    found = seen(runner, folder, parser, *epochs)
    assert flag in found.flags
    assert ("=" if parser == "hydra" else "--") in found.refused


def test_of_the_many_flags_of_hugging_faces_trainer_one_is_the_batch_size(runner, folder):
    for library in ("transformers", "accelerate"):
        installed(library)
    shutil.copy(SCRIPT.with_name("hf_flags.py"), folder / "trainer.py")
    words = ("--output_dir", "out", "--use_cpu", "True", "--report_to", "none")
    words += ("--num_train_epochs", "999", "--save_strategy", "no")
    found = seen(runner, folder, *words, script="trainer.py")
    assert "--" in found.refused
    maps, notes = proposals(found, {"batch_size": 8, "accumulation_steps": 1}, words)
    assert [flag.text for flag in maps] == [
        "batch_size=--per_device_train_batch_size",
        "accumulation_steps=--gradient_accumulation_steps",
    ]
    assert notes == ()
    pair = flag_from("pin_memory=--dataloader_pin_memory/--no_dataloader_pin_memory")
    assert list(unknown_words(found, pair.words)) == []


@pytest.mark.parametrize("pin", [True, False])
def test_a_trial_sets_the_pair_of_flags_of_a_boolean_option(runner, folder, pin):
    own = ("argparse", "--epochs", "9999", "--no-pin" if pin else "--pin")
    pair = flag_from("pin_memory=--pin/--no-pin")
    known = seen(runner, folder, *own)
    assert ScriptFlag(("--pin", "--no-pin"), None) in known.flags
    assert list(unknown_words(known, pair.words)) == []
    config = TrainingConfig.of({"batch_size": 16, "num_threads": 1, "pin_memory": pin})
    job = Job(
        Measure(QUICK),
        device="cpu",
        model_path=str(folder / "train.py"),
        script=ScriptOptions(own, (pair,)).call(config),
        config=config.as_dict(),
        deadline_seconds=120.0,
    )
    assert isinstance(outcome := runner.run(job, folder / "trial"), Measured), outcome
    assert (folder / "log.txt").read_text().endswith(f"pinned {pin}\n")


def test_text_that_a_flag_has_is_kept_nowhere(runner, folder):
    seen(runner, folder, "argparse", "--epochs", "999")
    files = [path for path in (folder / "trial").iterdir() if path.is_file()]
    assert files
    assert not [path for path in files if b"planted-hunter2" in path.read_bytes()]


def test_what_the_script_writes_overwrites_and_deletes_is_seen(runner, folder):
    shutil.rmtree(folder / "runs", ignore_errors=True)
    (folder / "log.txt").unlink(missing_ok=True)
    first = seen(runner, folder, "own", "epochs=999")
    assert set(first.folders) == {str(folder / "runs"), str(folder)}
    assert first.overwritten == ()
    again = seen(runner, folder, "own", "epochs=999")
    assert set(again.overwritten) == {str(folder / "runs" / "last.pt"), str(folder / "log.txt")}


def planned(folder, around, script, space=SPACE):
    """The plan of a search of a script with these flags, and the runner that was asked."""
    observed = replace(SEEN, surroundings=around)
    rates = lambda config, _: at(100.0 * batch_of(config))  # noqa: E731
    runner = ScriptedRunner(measure=rates, observed=observed)
    events = events_of(options_in(folder, space, script=script, trials=8), runner)
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


def seen_after(lines, runner, folder):
    """What is seen of the script that begins with these lines."""
    script = SCRIPT.read_text().replace("from __future__ import annotations\n", "")
    (folder / "train.py").write_text("\n".join([*lines, script]))
    found = seen(runner, folder, "argparse", "--epochs", "99")
    shutil.copy(SCRIPT, folder / "train.py")
    return found


def test_trackers_write_into_the_trials_folder(folder, runner):
    installed("tensorboard")
    lines = [
        "import os",
        "from tensorboard.summary.writer.event_file_writer import EventFileWriter",
        "from torch.utils.tensorboard import SummaryWriter",
        "writer = SummaryWriter('runs/real')",
        "writer.add_scalar('loss', 1.0)",
        "writer.flush()",
        "EventFileWriter(max_queue_size=5, logdir='runs/named').flush()",
        "SummaryWriter('logs/used')",
        "open('logs/used/config.yaml', 'w').close()",
        "open(os.path.join(SummaryWriter().log_dir, 'training.log'), 'w').close()",
        "assert os.environ['WANDB_MODE'] == 'disabled'",
        "assert os.environ['COMET_AUTO_LOG_DISABLE'] == '1'",
        "assert os.environ['NEPTUNE_MODE'] == 'offline'",
        "assert os.environ['CLEARML_OFFLINE_MODE'] == '1'",
        f"assert os.environ['CLEARML_CACHE_DIR'].startswith({str(folder)!r})",
        f"assert os.environ['NEPTUNE_DATA_DIRECTORY'].startswith({str(folder)!r})",
        "open('place', 'w').write(os.environ['MLFLOW_TRACKING_URI'])",
    ]
    found = seen_after(lines, runner, folder)
    assert found.trackers == ("TensorBoard",)
    unused = {str(folder / "runs" / name) for name in ("real", "named")}
    assert not any(Path(one).exists() for one in unused), "nothing is written into them"
    assert not unused & set(found.folders)
    assert (folder / "logs" / "used" / "config.yaml").exists()
    assert {str(folder / "logs" / "used"), str(folder)} <= set(found.folders)
    assert (folder / "trial" / "tensorboard" / "training.log").exists()
    assert list((folder / "trial" / "tensorboard").glob("events.out.tfevents.*"))
    place = (folder / "place").read_text()
    assert place == (folder / "trial" / "mlflow").absolute().as_uri()


WANDB = """
def init(entity=None, project=None, *, mode=None):
    open("wandb_said", "a").write(f"{project} {mode}\\n")
"""
MLFLOW = """
class MlflowClient:
    def __init__(self, tracking_uri=None, registry_uri=None):
        set_tracking_uri(tracking_uri)


def set_tracking_uri(uri):
    open("mlflow_said", "a").write(f"{uri}\\n")


set_registry_uri = set_tracking_uri
"""
TRACKIO = """
import os
PLACE = os.environ.get("TRACKIO_DIR") or "the user's own"
SPACE = os.environ.get("TRACKIO_SPACE_ID")


def init(project, name=None, space_id=None, server_url=None, *, bucket_id=None, webhook_url=None):
    said(project, space_id or SPACE, server_url, bucket_id, webhook_url)


def alert(title, text=None, webhook_url=None):
    said(title, webhook_url)


def sync(project, space_id=None):
    said("sent", space_id)


freeze = sync


def said(*words):
    open("trackio_said", "a").write(f"{PLACE} {words}\\n")
"""


def test_trackers_whose_mode_or_server_the_script_names_send_nothing_either(
    runner, folder, monkeypatch
):
    """Modules of their names stand in for them, with the real ones' parameters."""
    monkeypatch.setenv("TRACKIO_SPACE_ID", "me/space")
    (folder / "wandb.py").write_text(WANDB)
    (folder / "trackio.py").write_text(TRACKIO)
    (folder / "mlflow").mkdir()
    (folder / "mlflow" / "tracking.py").write_text(MLFLOW)
    (folder / "mlflow" / "__init__.py").write_text("from mlflow.tracking import *\n")
    lines = [
        "import mlflow, trackio, wandb",
        "trackio.init('real', None, 'me/space', 'http://host.invalid', bucket_id='me/bucket')",
        "trackio.init(project='mine', webhook_url='http://host.invalid')",
        "trackio.alert('slow', webhook_url='http://host.invalid')",
        "trackio.sync('real', 'me/space')",
        "trackio.freeze('real', space_id='me/space')",
        "from wandb import init",
        "wandb.init(project='real', mode='online')",
        "init('me', 'mine')",
        "mlflow.set_tracking_uri('http://host.invalid')",
        "mlflow.set_tracking_uri(uri='http://host.invalid')",
        "mlflow.set_registry_uri('http://host.invalid')",
        "mlflow.tracking.set_tracking_uri('http://host.invalid')",
        "mlflow.MlflowClient('http://host.invalid')",
    ]
    found = seen_after(lines, runner, folder)
    assert found.trackers == ("wandb", "MLflow", "Trackio")
    kept = (folder / "trial" / "trackio").absolute()
    assert (folder / "trackio_said").read_text().splitlines() == [
        f"{kept} ('real', None, None, None, None)",
        f"{kept} ('mine', None, None, None, None)",
        f"{kept} ('slow', None)",
    ]
    assert (folder / "wandb_said").read_text() == "real disabled\nmine disabled\n"
    place = (folder / "trial" / "mlflow").absolute().as_uri()
    assert set((folder / "mlflow_said").read_text().split()) == {place}
