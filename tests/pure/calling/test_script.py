"""Settings reach a script by its flags or beside it; its arguments tell which training it is."""

import pytest

from autotune.calling.arguments import arguments_digest, files_digest
from autotune.calling.flag import Flag, flag_from
from autotune.calling.target import is_script
from autotune.configuration.script import Plan, plan_run, with_flags
from autotune.configuration.training_config import TrainingConfig
from autotune.values.errors import UsageError

BATCH = Flag("batch_size", "--bs")
LARGE = TrainingConfig.of({"batch_size": 64})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((), ("--bs", "64")),
        (("--bs", "8", "x"), ("--bs", "64", "x")),
        (("--bs=8",), ("--bs=64",)),
        (("--bs", "8", "--bs=16"), ("--bs", "64", "--bs=64")),
        (("--bs-eval", "8"), ("--bs-eval", "8", "--bs", "64")),
        (("a", "--", "--bs", "8"), ("a", "--bs", "64", "--", "--bs", "8")),
        (("--bs",), ("--bs", "--bs", "64")),
    ],
)
def test_a_flag_takes_the_place_of_the_scripts_own(before, after):
    assert with_flags(before, [BATCH], LARGE) == after


def test_a_switch_stands_only_where_its_value_is_set():
    switch = flag_from("amp_dtype:float16=--fp16")
    half = TrainingConfig.of({"amp_dtype": "float16"})
    assert with_flags(("x",), [switch], half) == ("x", "--fp16")
    assert with_flags(("--fp16", "x"), [switch], LARGE) == ("x",)


@pytest.mark.parametrize(
    "text",
    [
        *("batch_size", "batch_size=", "batch_size=a b", "size=--bs", "=--bs"),
        *("batch_size=--bs/--no-bs", "batch_size=env:WORLD_SIZE", "amp_dtype:float16=env:HALF"),
    ],
)
def test_a_map_of_nothing_is_refused(text):
    with pytest.raises(UsageError):
        flag_from(text)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import torch\ndef main(): ...\n", True),
        ("", True),
        ("class build_models: ...\n", True),
        ("def build_model(): ...\n", False),
        ("from parts import model as build_model\n", False),
        ("from parts import *\n", False),
        ("from .parts import *\n", False),
        ("from installed.vision.all import *\nlearner.fit(3)\n", True),
        ("from parts import *\ndef train(loss):\n  loss.backward()\n", True),
        ("from parts import *\nfrom more import build_model\nx.backward()\n", False),
        ("compute_loss = print\n", False),
        ("def build_model(): ...\ndef main():\n  loss.backward()\n", True),
        ("def build_model(): ...\nSeq2SeqTrainer(model=build_model()).train()\n", True),
        ("def build_model(): ...\nlightning.Trainer().fit(build_model())\n", True),
        ("def build_model(): ...\ntrainer = None\nbuild_model().train()\n", False),
        ("def compute_los(): ...\ndef build_dataset():\n  Scaler().fit(3)\n", False),
        (
            "def build_model(): ...\ndef build_dataset(): ...\ndef compute_loss(): ...\n"
            "def main():\n  loss.backward()\n",
            False,
        ),
        ("def main():\n  def build_model(): ...\n", True),
        ("def broken(:\n", False),
    ],
)
def test_a_file_is_a_script_if_it_has_no_part_of_a_model_py(tmp_path, source, expected):
    (tmp_path / "parts.py").touch()
    (tmp_path / "train.py").write_text(source)
    assert is_script(tmp_path / "train.py") is expected


def test_a_plan_holds_back_what_changes_the_arithmetic():
    config = LARGE.replace(amp_dtype="bfloat16", num_workers=2, compile_mode="default")
    plan = plan_run(config, {"compile_mode": "default"}, [], allow_numerics=False)
    assert plan.withheld == {"amp_dtype=bfloat16": "needs --allow-numerics"}
    assert plan.settings["amp_dtype"] is None
    assert plan.settings["num_workers"] == 2
    assert plan.settings["batch_size"] == 64
    assert not {"amp_dtype", "compile_mode", "batch_size"} & set(plan.asked)
    assert Plan.from_json(plan.to_json()) == plan


def test_a_batch_size_goes_through_a_flag_or_not_at_all():
    withheld = {"batch_size=64": "needs --map batch_size=--FLAG"}
    assert plan_run(LARGE, {"batch_size": 8}, [], allow_numerics=True).withheld == withheld
    assert plan_run(LARGE, {"batch_size": 64}, [], allow_numerics=True).withheld == {}
    assert plan_run(LARGE, {"batch_size": 8}, [BATCH], allow_numerics=True).withheld == {}


def test_accumulation_that_the_script_does_itself_is_not_applied_again():
    config = LARGE.replace(accumulation_steps=2)
    plan = plan_run(config, {"batch_size": 64, "accumulation_steps": 2}, [], allow_numerics=True)
    assert plan.withheld == {}
    assert "accumulation_steps" not in plan.asked
    plan = plan_run(config, {"batch_size": 64, "accumulation_steps": 1}, [], allow_numerics=True)
    assert plan.withheld == {"accumulation_steps=2": "needs --map accumulation_steps=--FLAG"}


def test_float16_goes_through_a_flag_or_not_at_all():
    config = LARGE.replace(amp_dtype="float16")
    plan = plan_run(config, {}, [], allow_numerics=True)
    assert "--map amp_dtype:float16=--FLAG" in plan.withheld["amp_dtype=float16"]
    mapped = plan_run(config, {}, [flag_from("amp_dtype:float16=--fp16")], allow_numerics=False)
    assert mapped.by_flag == {"amp_dtype": "--fp16"}
    assert mapped.settings["amp_dtype"] == "float16"
    assert mapped.withheld == {}


def test_a_setting_is_passed_by_a_flag_only_where_the_flag_stands_for_its_value():
    half, brain = (flag_from(f"amp_dtype:{f}=--{f}") for f in ("float16", "bfloat16"))
    short = LARGE.replace(amp_dtype="bfloat16")
    plan = plan_run(short, {}, [half], allow_numerics=False)
    assert (plan.by_flag, plan.withheld) == ({}, {"amp_dtype=bfloat16": "needs --allow-numerics"})
    assert "amp_dtype" in plan_run(short, {}, [half], allow_numerics=True).asked
    for flags in ([half, brain], [brain, half]):
        plan = plan_run(short, {}, flags, allow_numerics=True)
        assert plan.by_flag == {"amp_dtype": "--bfloat16"}
        assert "amp_dtype" not in plan.asked


def test_null_is_passed_by_no_flag():
    flag = flag_from("amp_dtype=--dtype")
    assert plan_run(LARGE, {}, [flag], allow_numerics=True).by_flag == {}
    assert with_flags(("x",), [flag], LARGE) == ("x",)


def test_pytorchs_default_is_a_setting_where_the_script_was_found_with_another():
    own = {"compile_mode": "default", "float32_matmul_precision": "high"}
    plan = plan_run(LARGE, own, [], allow_numerics=True)
    assert {"compile_mode", "float32_matmul_precision"} <= set(plan.asked)
    assert not {"amp_dtype", "optimizer_impl", "channels_last"} & set(plan.asked)
    held_back = plan_run(LARGE, own, [], allow_numerics=False).withheld
    assert held_back == {
        "compile_mode=null": "needs --allow-numerics",
        "float32_matmul_precision=highest": "needs --allow-numerics",
    }
    scaled = plan_run(LARGE, {"amp_dtype": "float16"}, [], allow_numerics=True)
    assert "amp_dtype" in scaled.asked


BEFORE = ("--arch", "small", "--lr=0.1", "data")


def digest(*words, maps=()):
    return arguments_digest(words, [flag_from(text) for text in maps])


@pytest.mark.parametrize(
    "words",
    [
        ("--lr=0.1", "data", "--arch", "small"),
        ("--lr", "0.1", *BEFORE[:2], "data"),
        (*BEFORE, "--epochs", "90"),
        (*BEFORE, "--num_train_epochs=3", "--max-steps", "7", "trainer.max_epochs=2"),
        (*BEFORE, "--seed", "3", "--output-dir", "runs/b", "--log_dir=x", "--resume", "last.pt"),
        (*BEFORE, "--resume_from_checkpoint", "last.pt", "--start-epoch", "3"),
        (*BEFORE, "--work_dir=x", "--project_dir", "y", "--exp-name", "z"),
        (*BEFORE, "--save_steps", "9", "--logging_steps", "9", "--print-freq", "9"),
        (*BEFORE, "--total-timesteps", "9000"),
        (*BEFORE, "--api-token", "planted"),
        (*BEFORE, "--batch-size", "64"),
    ],
)
def test_length_seed_places_secrets_and_mapped_flags_are_the_same_training(words):
    maps = ("batch_size=--batch-size",)
    assert digest(*words, maps=maps) == digest(*BEFORE, maps=maps)


@pytest.mark.parametrize(
    "words",
    [
        ("--arch", "large", "--lr=0.1", "data"),
        ("--arch", "small", "--lr=0.2", "data"),
        ("--arch", "small", "--lr=0.1", "other"),
        ("--arch", "small", "data"),
        (*BEFORE, "--amp"),
        (*BEFORE, "--model-name", "resnet50"),
        (*BEFORE, "--warmup-steps", "5"),
        (*BEFORE, "--eval-accumulation-steps", "5"),
        (*BEFORE, "--work", "5"),
        (*BEFORE, "--expand-dir", "5"),
        (*BEFORE, "experiment=vit"),
        (*BEFORE, "--exp_file", "exps/large.py"),
        (*BEFORE, "--timesteps", "400"),
        (*BEFORE, "--num-train-timesteps", "400"),
        (*BEFORE, "--resume-lora-rank", "8"),
        (*BEFORE, "--out-channels", "5"),
        (*BEFORE, "--lr", "-1"),
    ],
)
def test_anything_else_is_another_training(words):
    assert digest(*words) != digest(*BEFORE)


def test_a_config_file_counts_by_its_contents_and_not_by_its_place(tmp_path):
    one, same = tmp_path / "one.yaml", tmp_path / "same.yaml"
    one.write_text("depth: 1\n")
    same.write_text("depth: 1\n")
    known = digest("--config", str(one)), files_digest([f"--config={one}"])
    assert digest("--config", str(same)) == known[0]
    one.write_text("depth: 2\n")
    assert digest("--config", str(one)) != known[0]
    assert files_digest([f"--config={one}"]) != known[1]
    assert files_digest([str(one)]) is not None


def test_places_of_results_data_and_missing_files_are_no_config_files(tmp_path):
    found = tmp_path / "found.json"
    found.write_text("{}")
    data = tmp_path / "data.npy"
    data.write_bytes(b"1")
    assert files_digest(["--output-file", str(found), str(data), "--config", "none.yaml"]) is None
