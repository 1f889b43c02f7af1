"""Command lines in README and docs: each command and option that they name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from autotune.cli import cli
from documented_lines import FOR_DEVELOPERS, LINES, OLD, PAGES, ROOT, others_of

# What follows is the script's.
SCRIPTS = re.compile(r" -- | --$")
# A launcher's words, for example.
QUOTED = re.compile(r"\"[^\"]*\"")


@pytest.mark.parametrize("line", LINES)
def test_each_command_and_option_of_the_docs_exists(line: str) -> None:
    name, *words = QUOTED.sub("", SCRIPTS.split(line)[0]).split()
    if not name.islower() or name.startswith("-"):
        return
    assert name.rstrip(",`") in cli.commands, line
    command = cli.commands[name.rstrip(",`")]
    known = {word for param in command.params for word in (*param.opts, *param.secondary_opts)}
    if name == "run":  # behind the script everything is the script's
        words = words[: next((at for at, word in enumerate(words) if word.endswith(".py")), None)]
    given = {word.partition("=")[0].strip("[],") for word in words if word.startswith("--")}
    assert given <= known | {"--help"}, line


# Lines of other programs, and what runs them or a line of the same form.
EXPORTED = "tests/contract/test_export_targets.py"
SLURM = "nothing: it needs Slurm; test_cluster_examples.py runs the file with a stand-in for srun"
WORKFLOW = ".github/workflows/ci.yaml"
RUN_BY = {
    "pip install /path/to/the/clone": "benchmarks/install.py",
    "pip install '/path/to/the/clone[all]'": "Makefile",
    "pip install '/path/to/the/clone[nvidia]'": "nothing: `[all]` holds it",
    "pip install '/path/to/the/clone[postgres]'": "nothing: `[all]` holds it",
    "pip install numpy psutil pydantic ruamel.yaml": (
        "nothing: other_interpreter holds what it leaves"
    ),
    "pipx install /path/to/the/clone": "nothing: by hand",
    "export AUTOTUNE_PYTHON=/path/to/.venv/bin/python": (
        "tests/integration/test_other_interpreter.py"
    ),
    "kubectl apply -f search.yaml": "nothing: it needs Kubernetes; the file itself is parsed",
    "PYTHON=python3.12 make test": WORKFLOW,
    "LOCK=FILE make test": WORKFLOW,
    "cd /shared/train && sbatch /path/to/the/clone/examples/cluster/search.sbatch model.py "
    "--time-budget 2h": SLURM,
    "cd /shared/train && sbatch --array=1-4 /path/to/the/clone/examples/cluster/worker.sbatch "
    "model.py": SLURM,
    "cd /shared/train && sbatch /path/to/the/clone/examples/cluster/launch.sbatch train.py -- "
    "--epochs 90": SLURM,
    'export HOSTS="node1 node2" NPROC=8': "tests/integration/test_ranks.py",
    "export MASTER_ADDR=node1 MASTER_PORT=29500": "nothing: it needs Open MPI on several hosts",
    "ssh -L 8080:localhost:8080 machine": "nothing: it needs another machine",
    "optuna-dashboard sqlite:///studies/digits_cnn/study.db --artifact-dir "
    "studies/digits_cnn/artifacts": "tests/integration/test_dashboard.py",
    "accelerate launch": EXPORTED,
    "accelerate launch --config_file FILE train.py": EXPORTED,
    "sh FILE train.py --its --arguments": EXPORTED,
    "torchrun --nproc-per-node N": EXPORTED,
    "torchrun --nnodes": EXPORTED,
    "torchrun --standalone --nproc-per-node 2 -m autotune run best.yaml train.py": (
        "tests/integration/test_ranks_run.py"
    ),
    "python -m benchmarks.record model.py --space S --out table.jsonl": (
        "tests/integration/test_record_and_replay.py"
    ),
    "make bench-search": "nothing: it takes hours",
}


def test_each_line_of_another_program_is_run_or_says_what_it_needs() -> None:
    found = {line for page in PAGES if page.name not in OLD for line in others_of(page)}
    assert found == set(RUN_BY)
    places = [place for place in RUN_BY.values() if not place.startswith("nothing")]
    assert [place for place in places if not (ROOT / place).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_is_for_developers_exists(page: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    for program, name in FOR_DEVELOPERS.findall(page.read_text(encoding="utf-8")):
        if program == "make" and "-" in name:
            assert name in targets, name
        elif name.startswith("benchmarks."):
            place = ROOT / name.replace(".", "/")
            assert place.is_dir() or place.with_suffix(".py").exists(), name


def test_the_lines_are_found() -> None:
    assert len(LINES) > 40
    assert "search train.py -- --epochs 90" in LINES
