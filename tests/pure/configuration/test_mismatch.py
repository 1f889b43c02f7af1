"""A best.yaml that was made for something else says so, once and in full, or is refused."""

import warnings

import pytest
import torch

import autotune
from autotune.configuration.best_config import write_best
from autotune.configuration.mismatch import gpu_mismatches, mismatches
from autotune.configuration.training_config import TrainingConfig
from autotune.values.errors import UsageError
from autotune.values.machine import nvidia_gpus
from factories import GIB, best_config, found_here, written

SLOWER = TrainingConfig.of({"batch_size": 8})


@pytest.fixture
def model(tmp_path):
    return written(tmp_path, "# trains\n", "model.py")


@pytest.fixture
def best(model):
    """Found here: nothing differs."""
    return found_here(best_config(SLOWER.replace(batch_size=16), SLOWER), model)


def elsewhere(best, **machine):
    return best.model_copy(update={"machine": best.machine.model_copy(update=machine)})


def saved(folder, best):
    write_best(best, folder / "best.yaml")
    return folder / "best.yaml"


def test_equal_machines_have_no_mismatch(tmp_path, best):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = autotune.load(saved(tmp_path, best), strict=True)
        loaded.apply_to_process()
    assert loaded.answer == best


def test_torchs_own_version_is_that_of_the_installed_package(best):
    assert mismatches(elsewhere(best, torch=torch.__version__)) == []


@pytest.mark.parametrize(
    ("machine", "line"),
    [
        ({"cpu": "Z80"}, "CPU: Z80 in the file, "),
        ({"cores": 1000}, "usable cores: 1000 in the file, "),
        ({"python": "3.9.1"}, "Python: 3.9 in the file, "),
        ({"torch": "1.13.1+cu117"}, "torch: 1.13.1"),
        ({"driver": "12.34"}, "driver: 12.34 in the file, "),
    ],
)
def test_a_difference_is_named_with_both_values(best, machine, line):
    (found,) = mismatches(elsewhere(best, **machine))
    assert found.startswith(line)
    assert found.endswith(" here")


H100 = "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(
    ("device", "models", "found"),
    [
        (H100, [H100], []),
        (f"{H100} MIG 1g.10gb", ["NVIDIA L4", H100], []),
        (H100, ["NVIDIA H100"], [f"GPU: {H100} in the file, NVIDIA H100 here"]),
        (H100, [], [f"GPU: {H100} in the file, no NVIDIA GPU here"]),
        ("cpu", [H100], []),
        ("AMD Instinct MI300X", [], []),
    ],
)
def test_a_gpu_is_compared_with_those_that_the_kernel_lists(tmp_path, device, models, found):
    for number, name in enumerate(models):
        folder = tmp_path / f"proc/driver/nvidia/gpus/0000:{number:02}:00.0"
        folder.mkdir(parents=True)
        written(folder, f"Model: \t\t {name}\nIRQ:   \t\t 42\n", "information")
    assert gpu_mismatches(device, None, nvidia_gpus(tmp_path)) == found


def test_too_little_memory_is_named(best):
    memory = best.constraints.memory.model_copy(update={"peak_bytes": 1 << 60})
    held = best.constraints.model_copy(update={"memory": memory})
    (found,) = mismatches(best.model_copy(update={"constraints": held}))
    assert found.startswith(f"memory: the settings need {(1 << 60) // GIB // 1024} TiB")


def test_everything_is_one_warning_that_points_at_the_caller(tmp_path, best):
    path = saved(tmp_path, elsewhere(best, cpu="Z80", cores=1000))
    with pytest.warns(autotune.MismatchWarning) as caught:
        autotune.load(path)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    said = str(caught[0].message)
    assert said.startswith(f"{path} was made for something else:\n  CPU: Z80")
    assert "usable cores: 1000" in said
    assert "autotune compare" in said


def test_strict_raises_what_would_have_been_a_warning(tmp_path, best):
    path = saved(tmp_path, elsewhere(best, cpu="Z80", cores=1000))
    with pytest.raises(autotune.MismatchError, match=r"CPU: Z80(.|\n)*usable cores") as raised:
        autotune.load(path, strict=True)
    assert raised.value.exit_code == 6


def test_without_a_path_the_model_is_looked_for_where_the_file_says(best, model, monkeypatch):
    source = best.provenance.model_copy(update={"model": "model.py"})
    best = best.model_copy(update={"provenance": source})
    written(model.parent, "# trains otherwise\n", "model.py")
    monkeypatch.chdir(model.parent)
    assert mismatches(best) == ["model.py: changed since the search"]
    model.unlink()
    assert mismatches(best) == [], "the file was moved; nobody said where the model is"


def test_a_model_that_was_named_has_to_be_there(tmp_path, best):
    with pytest.raises(UsageError, match=r"absent\.py: cannot be read"):
        autotune.load(saved(tmp_path, best), model=tmp_path / "absent.py")


def test_a_variable_that_the_process_should_have_begun_with_is_told(tmp_path, best, monkeypatch):
    config = {**best.config, "env.OMP_WAIT_POLICY": "PASSIVE"}
    loaded = autotune.load(saved(tmp_path, best.model_copy(update={"config": config})))
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    said = "POLICY=PASSIVE in the file, not set here"
    with pytest.warns(autotune.MismatchWarning, match=said) as caught:
        loaded.apply_to_process()
    assert caught[0].filename == __file__
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded.apply_to_process()


def test_strict_refuses_before_anything_is_changed(tmp_path, best, monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    threads = torch.get_num_threads()
    changed = {**best.config, "num_threads": threads + 1, "env.OMP_WAIT_POLICY": "PASSIVE"}
    path = saved(tmp_path, best.model_copy(update={"config": changed}))
    with pytest.raises(autotune.MismatchError, match="OMP_WAIT_POLICY"):
        autotune.load(path, strict=True).apply_to_process()
    assert torch.get_num_threads() == threads
