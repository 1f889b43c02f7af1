"""`autotune export` from the command line: where it writes and what it refuses."""

import json
import os
import sys

import pytest

from answers import on_cpu, on_gpu
from autotune.cli import main
from autotune.configuration.best_config import write_best
from autotune.export import FORMATS, export
from covering import covers
from factories import written

USAGE = 2


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    """The command in a folder with gpu.yaml and cpu.yaml: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    write_best(on_gpu(), tmp_path / "gpu.yaml")
    write_best(on_cpu(), tmp_path / "cpu.yaml")

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["autotune", "export", *arguments])
        code = 0
        try:
            main()
        except SystemExit as stopped:
            code = int(stopped.code or 0)
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        assert "internal error" not in said.err
        return code, said.out, said.err

    return call


@pytest.mark.parametrize("form", FORMATS)
def test_a_form_is_on_stdout_and_what_it_leaves_out_on_stderr(call, form):
    exported = export(on_gpu(), form)
    code, out, err = call("gpu.yaml", "--format", form)
    assert (code, out) == (0, exported.text)
    assert all(way in err for way in exported.dropped.values())
    assert bool(err) == bool(exported.dropped)


@pytest.mark.parametrize("form", FORMATS)
def test_strict_writes_nothing_that_is_not_whole(call, form, tmp_path):
    code, out, err = call("gpu.yaml", "--format", form, "--strict", "--out", "new")
    if export(on_gpu(), form).dropped:
        assert (code, out) == (USAGE, "")
        assert f"--format {form} cannot carry" in err
    else:
        assert (code, err) == (0, "")
    assert (tmp_path / "new").exists() == (code == 0)


def test_a_file_is_written_in_place_of_stdout(call, tmp_path):
    code, out, _ = call("cpu.yaml", "--format", "json", "--out", "settings.json")
    assert (code, out) == (0, "")
    assert json.loads((tmp_path / "settings.json").read_text()) == on_cpu().config


@covers("X4")
def test_an_existing_file_is_overwritten_only_by_force(call, tmp_path):
    mine = written(tmp_path, "mine", "mine.json")
    code, _, err = call("cpu.yaml", "--format", "json", "--out", "mine.json")
    assert (code, mine.read_text()) == (USAGE, "mine")
    assert "mine.json exists" in err
    assert "--force" in err
    assert call("cpu.yaml", "--format", "json", "--out", "mine.json", "--force")[0] == 0
    assert json.loads(mine.read_text()) == on_cpu().config


@covers("X4")
@pytest.mark.parametrize("force", [[], ["--force"]])
@pytest.mark.parametrize("target", ["mine.json", "absent.json"])
def test_nothing_is_written_through_a_symbolic_link(call, tmp_path, target, force):
    written(tmp_path, "mine", "mine.json")
    (tmp_path / "link.json").symlink_to(target)
    code, _, err = call("cpu.yaml", "--format", "json", "--out", "link.json", *force)
    assert code == USAGE
    assert "link.json is a symbolic link" in err
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "mine.json").read_text() == "mine"
    assert not (tmp_path / "absent.json").exists()


def test_a_path_that_is_no_file_is_not_replaced_even_by_force(call, tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        code, _, err = call("cpu.yaml", "--format", "json", "--out", name, "--force")
        assert code == USAGE
        assert f"{name} is not a regular file" in err


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux'")
def test_a_folder_in_which_nobody_can_write_is_named(call):
    code, _, err = call("cpu.yaml", "--format", "json", "--out", "/proc/autotune.json")
    assert code == USAGE
    assert "/proc/autotune.json cannot be written: " in err


def test_an_unknown_format_is_refused_with_those_that_exist(call):
    code, _, err = call("cpu.yaml", "--format", "keras")
    assert code == USAGE
    assert "'keras' is not one of" in err
    assert "lightning" in err


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("absent.yaml", None, "absent.yaml: cannot be read (No such file or directory)"),
        (".", None, ".: cannot be read (Is a directory)"),
        ("empty.yaml", "", "empty.yaml:1:1: the top level is empty"),
        ("rubbish.yaml", "autotune: [", "rubbish.yaml:1:"),
        ("binary.yaml", "\x00\x01", "binary.yaml:1:1: not valid YAML: character U+0000"),
    ],
)
def test_a_file_that_is_no_answer_is_refused_with_its_place(call, tmp_path, name, text, words):
    if text is not None:
        written(tmp_path, text, name)
    code, out, err = call(name, "--format", "json")
    assert (code, out) == (USAGE, "")
    assert words in err
