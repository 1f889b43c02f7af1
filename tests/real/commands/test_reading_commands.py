"""The commands that only tell: settings, spaces, doctor."""

import pytest

from autotune.knobs import ALL_KNOBS, process
from children import WORKLOADS, autotune
from command_line import command

pytestmark = pytest.mark.usefixtures("one_host")


def test_knobs_lists_every_knob_and_why_one_is_not_varied_here():
    done = command("settings", "--device", "cpu")
    assert done.code == 0
    assert all(knob.name in done.out for knob in ALL_KNOBS)
    assert "not varied: there is no accelerator to copy to" in done.out


def test_each_value_that_cannot_be_had_has_its_own_reason(monkeypatch):
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    monkeypatch.setattr(process, "library", lambda _: None)
    rows = [
        " ".join(row.split()) for row in command("settings", "--device", "cpu").out.splitlines()
    ]
    at = next(n for n, row in enumerate(rows) if row.startswith("cpu_allocator null not varied"))
    assert rows[at + 1].startswith("not jemalloc: libjemalloc is not installed: apt-get install")
    assert rows[at + 2].startswith("not tcmalloc: libtcmalloc is not installed: apt-get install")


def test_knobs_with_a_model_says_what_it_has_no_use_for():
    done = command("settings", WORKLOADS / "stream.py", "--device", "cpu")
    assert done.code == 0
    assert "not varied: no 4-D or 5-D tensors in the batches" in done.out


def test_doctor_says_what_the_machine_allows():
    done = command("doctor", "--device", "cpu:0")
    assert done.code == 0
    for fact in ("affinity", "quota", "memory limit", "shared memory", "compiler", "native AMP"):
        assert fact in done.out


@pytest.mark.parametrize("device", ["meta", "nonsense", "cuda:99"])
def test_a_device_on_which_nothing_can_train_is_refused(device):
    done = command("doctor", "--device", device)
    assert done.code == 2
    assert f"--device {device}" in done.err
    assert "Traceback" not in done.err


def test_a_file_that_reads_arguments_finds_its_own_defaults(tmp_path):
    text = "import argparse\nargparse.ArgumentParser().parse_args()\n"
    (tmp_path / "mine.py").write_text(text + (WORKLOADS / "plain.py").read_text())
    assert autotune(tmp_path, "settings", "mine.py").returncode == 0
