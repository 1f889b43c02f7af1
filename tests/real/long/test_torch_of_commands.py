"""A command line without torch, or with one that is too old, says so at once."""

import re
import sys
import venv
from pathlib import Path

import pytest

from children import completed
from factories import written
from tuned_scripts import best

ALONE = ("torch", "torchvision", "torchgen", "functorch")
"""Left out of an environment that holds a command line alone."""


def environment(folder, without):
    """Make an environment with all packages but some; return its Python."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for place in (Path(place) for place in sys.path if place.endswith("site-packages")):
        for entry in place.iterdir():
            if _package(entry.name) not in without and not (site / entry.name).exists():
                (site / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


def pretend(python, name, version):
    """Let a package seem to be installed in a version; importing it fails."""
    (site,) = python.parents[1].glob("lib/python*/site-packages")
    (site / f"{name}.py").write_text("raise ImportError\n")
    facts = site / f"{name}-{version}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def _package(entry):
    """The package of an entry in site-packages, also of an editable install's files."""
    if "autotune" in entry:
        return "autotune"
    return re.split(r"[-.]", entry.lower(), maxsplit=1)[0]


USAGE = 2
COMMANDS = [
    "search train.py",
    "compare train.py best.yaml",
    "run best.yaml train.py",
    "profile train.py",
    "worker name --storage postgresql://x --model train.py",
    "settings",
    "doctor",
]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The Python of a command line that is installed without torch."""
    return environment(tmp_path_factory.mktemp("alone"), ALONE)


@pytest.fixture
def folder(tmp_path):
    written(tmp_path, "import torch\n", "train.py")
    best(tmp_path)
    return tmp_path


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_without_torch_says_so_at_once(alone, folder, words):
    done = completed(folder, [alone, "-m", "autotune", *words.split()])
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert done.stderr.startswith(f"autotune: there is no torch for {alone}. Install it")
    assert not (folder / "studies").exists()


def test_a_torch_that_is_too_old_for_a_search_is_told_at_once(tmp_path, folder):
    older = environment(tmp_path / "older", ALONE)
    pretend(older, "torch", "2.9.1+cu128")
    done = completed(folder, [older, "-m", "autotune", "search", "train.py"])
    assert done.returncode == USAGE
    assert "torch 2.9.1+cu128 is too old: this needs torch 2.11 or newer" in done.stderr
    assert "`autotune run`, `export` and `autotune.load` work with it." in done.stderr


def test_a_variable_has_the_older_name_for_a_torch_that_knows_no_other(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    older = environment(tmp_path / "older", ALONE)
    pretend(older, "torch", "2.9.1+cu128")
    path = best(tmp_path, **{"env.PYTORCH_ALLOC_CONF": "expandable_segments:True"})
    written(tmp_path, "", "train.py")
    words = ("run", "--allow-numerics", "--print-command", path, "train.py")
    for python, name in (
        (older, "PYTORCH_CUDA_ALLOC_CONF"),
        (sys.executable, "PYTORCH_ALLOC_CONF"),
    ):
        done = completed(tmp_path, [python, "-m", "autotune", *words])
        assert f" {name}=expandable_segments:True " in done.stdout, done.stderr
