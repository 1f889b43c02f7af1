"""Arguments of a script are compared by digests, which tell the same training from another."""

import pytest

from autotune.calling.arguments import arguments_digest, files_digest
from autotune.calling.flag import flag_from

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
