"""Flags that a script has and files that it writes are seen; trackers send nothing."""

import shutil
from pathlib import Path

import pytest

from asked_scripts import Ask, observed
from autotune.calling.flag import flag_from
from autotune.configuration.job import Job, Measure
from autotune.configuration.script import ScriptOptions
from autotune.configuration.training_config import TrainingConfig
from autotune.context.script_ways import proposals, unknown_words
from autotune.process.runner import SubprocessRunner
from autotune.values.outcome import Measured, ScriptFlag
from children import QUICK
from needs import installed
from tiers import late

SCRIPT = Path(__file__).parents[2] / "scripts" / "parses_flags.py"


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
    return observed(Ask(runner, folder / "trial")(str(folder / script), *arguments)).surroundings


@pytest.mark.parametrize(
    ("parser", "needed", "flag"),
    [
        ("argparse", "torch", ScriptFlag(("-b", "--batch-size"), 16)),
        late("hf", "torch", ScriptFlag(("--per_device_train_batch_size",), 16)),
        ("click", "click", ScriptFlag(("--bs",), 16)),
        late("json", "jsonargparse", ScriptFlag(("--data.batch_size",), 16)),
        late("hydra", "hydra", ScriptFlag(("train.batch_size",), 16)),
        late("tyro", "tyro", ScriptFlag(("--train.batch_size", "--train.batch-size"), 16)),
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


@pytest.mark.parametrize("pin", [True, late(False)])
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
        *("trackio.sync('real', 'me/space')", "trackio.freeze('real', space_id='me/space')"),
        *("from wandb import init", "wandb.init(project='real', mode='online')"),
        *("init('me', 'mine')", "mlflow.set_tracking_uri('http://host.invalid')"),
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
