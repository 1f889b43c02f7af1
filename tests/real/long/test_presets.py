"""A flag that a preset maps changes the training, in scripts of its family."""

import pytest

from autotune.calling.flag import preset_maps
from autotune.configuration.best_config import read_best
from children import hurried, succeeded
from factories import written
from needs import installed
from tuned_scripts import SCRIPTS, run

CLI = ("fit", "--trainer.max_epochs=1", "--trainer.accelerator=cpu", "--trainer.logger=false")
HF = ("--output_dir", "out", "--use_cpu", "True", "--report_to", "none")
FAMILIES = {
    "timm": ("timm_train.py", ("--data-dir", "."), ("timm", "torchvision", "PIL")),
    "lightning": (
        "lightning_cli.py",
        (*CLI, "--trainer.enable_checkpointing=false"),
        ("lightning", "jsonargparse"),
    ),
    "hf": (
        "hf_flags.py",
        (*HF, "--num_train_epochs", "1", "--save_strategy", "no"),
        ("transformers", "accelerate"),
    ),
}
SETTINGS = [
    ({"batch_size": 16}, "on 16 images 2 times in 2 steps"),
    ({"batch_size": 8, "accumulation_steps": 2}, "on 8 images 4 times in 2 steps"),
]


@pytest.mark.parametrize("preset", FAMILIES)
@pytest.mark.parametrize(("settings", "trained"), SETTINGS)
def test_what_a_preset_maps_changes_what_trains(tmp_path, preset, settings, trained):
    """Without a preset the scripts train in batches of 4 or 8, one step each."""
    script, arguments, libraries = FAMILIES[preset]
    for library in libraries:
        installed(library)
    for name in ("class0", "class1"):
        (tmp_path / name).mkdir()
    maps = [word for flag in preset_maps(preset, ()) for word in ("--map", flag.text)]
    done = succeeded(run(tmp_path, *maps, SCRIPTS / script, *arguments, **settings))
    assert f"trained {trained}\n" in done.stdout, done.stderr
    for knob, value in settings.items():
        assert f"{knob}={value} (by " in done.stderr


def test_a_trainer_that_takes_no_flags_is_searched_through_its_arguments(tmp_path):
    installed("transformers")
    space = written(tmp_path, "batch_size: [8, 16]\n")
    options = ("--space", space, "--preset", "hf", "--trials", "3")
    script = SCRIPTS / "hf_trainer.py"
    done = hurried(tmp_path, "search", script, *options, "--", "out", "100000")
    assert done.returncode == 0, done.stderr
    name = "transformers.training_args.TrainingArguments.per_device_train_batch_size"
    assert f"searching batch_size through {name}" in done.stderr
    found = read_best(tmp_path / "studies" / "hf_trainer" / "best.yaml")
    assert f"batch_size=call:{name}" in found.provenance.maps
    # Its model has no gradient checkpointing, which fails that trial alone.
    assert found.evidence.searched.measured == 1, done.stderr
