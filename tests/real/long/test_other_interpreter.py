"""A command line without torch trains with the Python that --python names."""

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import torch
import yaml

from children import HURRIED
from factories import written
from tuned_scripts import best

ALONE = ("torch", "torchvision", "torchgen", "functorch")
"""Left out of an environment that holds a command line alone."""
NOT_TRAINING = ("autotune", "click", "optuna", "optuna_dashboard", "rich", "sqlalchemy")
"""Left out of an environment that trains: the parent's packages, and ours."""


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
TRAIN = """\
import sys
from importlib.util import find_spec

import torch
from torch.utils.data import DataLoader, TensorDataset

print("with", sys.executable, [name for name in ("optuna", "click", "rich") if find_spec(name)])
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.ones(640, 4))
if __name__ == "__main__":
    context = "spawn" if "--spawn" in sys.argv else None
    loader = DataLoader(data, batch_size=8, num_workers=1, multiprocessing_context=context)
    for _ in range(1 if context else 40):
        for (batch,) in loader:
            model(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The Python of a command line that is installed without torch."""
    return environment(tmp_path_factory.mktemp("alone"), ALONE)


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    """The Python of an environment that trains, where autotune is not installed."""
    return environment(tmp_path_factory.mktemp("training"), NOT_TRAINING)


@pytest.fixture
def folder(tmp_path):
    written(tmp_path, TRAIN, "train.py")
    best(tmp_path)
    return tmp_path


def finished(python, folder, *words, **environ):
    program = words if str(words[0]).endswith(".py") else ("-m", "autotune", *words)
    inherited = {name: text for name, text in os.environ.items() if name != "AUTOTUNE_PYTHON"}
    return subprocess.run(
        [python, *map(str, program)],
        cwd=folder,
        env={**inherited, **environ},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_without_torch_says_so_at_once(alone, folder, words):
    done = finished(alone, folder, *words.split())
    assert (done.returncode, done.stdout) == (USAGE, "")
    said = f"autotune: {alone} cannot train under autotune:\n  there is no torch. Install it"
    assert done.stderr.startswith(said)
    assert "--python " in done.stderr
    assert not (folder / "studies").exists()


def test_what_an_interpreter_lacks_is_told_at_once(tmp_path, folder):
    lacking = environment(tmp_path / "lacking", {*NOT_TRAINING, *ALONE, "pydantic", "psutil"})
    pretend(lacking, "torch", "2.4.1")
    done = finished(Path(sys.executable), folder, "search", "train.py", "--python", lacking)
    assert done.returncode == USAGE
    assert done.stderr.splitlines() == [
        f"autotune: {lacking} cannot train under autotune:",
        "  torch 2.4.1; this command needs 2.11 or newer.",
        f"  packages are missing or too old: {lacking} -m pip install "
        "'psutil>=5.8' 'pydantic>=2.11'",
    ]


def test_a_variable_has_the_older_name_for_a_torch_that_knows_no_other(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    older = environment(tmp_path / "older", {*NOT_TRAINING, *ALONE})
    pretend(older, "torch", "2.9.1+cu128")
    path = best(tmp_path, **{"env.PYTORCH_ALLOC_CONF": "expandable_segments:True"})
    written(tmp_path, TRAIN, "train.py")
    words = ("--allow-numerics", "--print-command", path, "train.py")
    for python, name in (
        (older, "PYTORCH_CUDA_ALLOC_CONF"),
        (sys.executable, "PYTORCH_ALLOC_CONF"),
    ):
        done = finished(Path(sys.executable), tmp_path, "run", "--python", python, *words)
        assert f" {name}=expandable_segments:True " in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("no/such/python", "there is no such program"),
        ("/bin/false", "is no Python 3.11 or newer that runs"),
        ("/bin/echo", "is no Python 3.11 or newer that runs"),
        (".", "bin/python: there is no such program"),
    ],
)
def test_what_is_no_python_is_refused(folder, place, says):
    done = finished(Path(sys.executable), folder, "doctor", "--python", place)
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert says in done.stderr


@pytest.mark.long
def test_the_machine_is_that_of_the_interpreter_that_trains(alone, training, folder):
    own = finished(Path(sys.executable), folder, "doctor")
    for words, environ in (
        (("--python", training), {}),
        (("--python", training.parents[1]), {}),  # the folder of an environment
        ((), {"AUTOTUNE_PYTHON": str(training)}),
    ):
        done = finished(alone, folder, "doctor", *words, **environ)
        assert (done.returncode, done.stdout) == (0, own.stdout), done.stderr


@pytest.mark.parametrize("words", ["train.py", "train.py --spawn", "-m train"])
def test_a_script_runs_in_the_environment_that_trains(alone, training, folder, words):
    done = finished(alone, folder, "run", "--python", training, "best.yaml", *words.split())
    assert done.returncode == 0, done.stderr
    assert f"with {training} []" in done.stdout.splitlines()
    assert "autotune: applied: " in done.stderr


def test_a_search_trains_in_that_environment(alone, training, folder):
    written(folder, "num_workers: [0, 1]\n", "space.yaml")
    flags = ("--space", "space.yaml", "--trials", "2", "--python", training)
    done = finished(alone, folder, HURRIED, "search", "train.py", *flags)
    assert done.returncode == 0, done.stderr
    answer = yaml.safe_load((folder / "studies/train/best.yaml").read_text())
    assert answer["machine"]["torch"] == torch.__version__
    logs = list((folder / "studies/train/trials").rglob("stdout.log"))
    printed = [text for log in logs if (text := log.read_text())]  # inspecting a machine is silent
    assert all(f"with {training} []" in text for text in printed)
    assert len(printed) > 3
    compared = finished(
        alone, folder, HURRIED, "compare", "train.py", "studies/train/best.yaml",
        "--python", training, "--", "x",
    )  # fmt: skip
    assert compared.returncode == 0, compared.stderr
    assert "was made for something else" not in compared.stderr
