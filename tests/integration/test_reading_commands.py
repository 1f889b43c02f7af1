"""The commands that only tell: knobs, spaces, doctor."""

import pytest

from autotune.knobs import ALL_KNOBS
from children import WORKLOADS, autotune


def test_knobs_lists_every_knob_and_why_one_is_frozen_here(tmp_path):
    done = autotune(tmp_path, "knobs", "--device", "cpu")
    assert done.returncode == 0
    assert all(knob.name in done.stdout for knob in ALL_KNOBS)
    assert "frozen: there is no accelerator to copy to" in done.stdout


def test_knobs_with_a_model_says_what_it_has_no_use_for(tmp_path):
    done = autotune(tmp_path, "knobs", WORKLOADS / "stream.py", "--device", "cpu")
    assert done.returncode == 0
    assert "frozen: no 4-D tensors in the batches" in done.stdout


def test_doctor_says_what_the_machine_allows(tmp_path):
    done = autotune(tmp_path, "doctor", "--device", "cpu:0")
    assert done.returncode == 0
    for fact in ("affinity", "quota", "memory limit", "shared memory", "compiler", "native AMP"):
        assert fact in done.stdout


@pytest.mark.parametrize("device", ["meta", "nonsense", "cuda:99"])
def test_a_device_on_which_nothing_can_train_is_refused(tmp_path, device):
    done = autotune(tmp_path, "doctor", "--device", device)
    assert done.returncode == 2
    assert f"--device {device}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_reads_arguments_finds_its_own_defaults(tmp_path):
    text = "import argparse\nargparse.ArgumentParser().parse_args()\n"
    (tmp_path / "mine.py").write_text(text + (WORKLOADS / "plain.py").read_text())
    assert autotune(tmp_path, "knobs", "mine.py").returncode == 0
