"""The kit that measures on a GPU, in small and on the CPU: every step of it really runs."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from autotune.configuration.best_config import write_best
from autotune.configuration.training_config import TrainingConfig
from children import HURRIED
from factories import best_config

KIT = Path(__file__).parents[2] / "benchmarks" / "gpu"
MOST_FILES, LARGEST_FILE = 8, 16 << 20
# Starts another process in a session of its own, says which, and hangs.
HANGS = """
import subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
child = subprocess.Popen(sleep, start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""
SLEEPS = """
import time, torch
BASELINE = {"batch_size": 4}
def build_model(): return torch.nn.Linear(2, 1)
def build_dataset(): return torch.utils.data.TensorDataset(torch.randn(512, 2))
def compute_loss(model, batch):
    time.sleep(0.02)
    return model(batch[0]).square().mean()
"""


def kit(folder: Path, part: str, *more: str) -> tuple[subprocess.CompletedProcess[str], Path]:
    out = folder / "out"
    wheels = ["--wheels", str(folder / "none"), "--device", "cpu"]
    command = [sys.executable, str(KIT / "kit.py"), part, "--out", str(out), *wheels, *more]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, timeout=590
    )
    return done, out


def steps(out: Path) -> dict[str, dict[str, Any]]:
    lines = (out / "steps.jsonl").read_text(encoding="utf-8").splitlines()
    return {step["name"]: step for step in map(json.loads, lines)}


def of_own(folder: Path, *listed: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], Path]:
    """The results of steps of one's own."""
    file = folder / "steps.json"
    file.write_text(json.dumps(listed), encoding="utf-8")
    _, out = kit(folder, str(file))
    return steps(out), out


def has_ended(pid: int) -> bool:
    """Return True if a process is gone, or waits for nothing but to be reaped."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def python(name: str, code: str, seconds: float = 60, **more: Any) -> dict[str, Any]:
    return {"name": name, "command": ["{python}", "-c", code], "seconds": seconds, **more}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("part1", ["install", "doctor", "tests", "transformer search", "transformer judge"]),
        ("part2", ["install", "resnet18 search", "resnet18 judge", "probes"]),
        ("rest", ["install", "resnet50 search", "rival", "resnet50 judge", "A/A", "JPEG profile"]),
    ],
)
def test_every_step_of_a_part_runs_in_small(part: str, expected: list[str], tmp_path: Path) -> None:
    done, out = kit(tmp_path, part, "--smoke", "--autotune", str(HURRIED))
    found = steps(out)
    log = (out / "log.txt").read_text(encoding="utf-8", errors="replace")
    assert done.returncode == 0, f"{done.stdout}\n{log}"
    assert set(expected) <= set(found)
    assert {n for n in found if found[n]["result"] == "skipped"} <= {"install", "nvidia-smi"}
    for name, step in found.items():
        assert f"{name:18} {step['result']:8}" in done.stdout
        assert step["says"], f"{name} has no result"
    files = list(out.rglob("*"))
    assert len(files) <= MOST_FILES
    assert max(file.stat().st_size for file in files) <= LARGEST_FILE
    assert done.stdout == (out / "summary.txt").read_text(encoding="utf-8")
    for judged in out.glob("*-judge.json"):
        assert "answer/default" in json.loads(judged.read_text(encoding="utf-8"))["ratios"]
    written = [
        path.read_text(encoding="utf-8", errors="replace") for path in out.glob("*-best.yaml")
    ]
    assert written
    assert str(tmp_path) not in "".join(written)
    assert "model: workloads/" in written[0]
    if part == "part2":
        lines = (out / "probes.jsonl").read_text(encoding="utf-8").splitlines()
        verdicts = {row["row"]: row["verdict"] for row in map(json.loads, lines)}
        assert verdicts.keys() == {"C1", "C2", "C3", "C4", "C6", "C10", "C12", "C14"}
        assert set(verdicts.values()) == {"as expected", "not here"}, lines


def test_a_step_that_hangs_is_cut_with_all_that_it_started_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    found, out = of_own(tmp_path, python("hangs", HANGS, 4), python("next", "print('went on')"))
    assert found["hangs"]["result"] == "cut"
    assert has_ended(int(found["hangs"]["says"]))
    assert (found["next"]["result"], found["next"]["says"]) == ("ok", "went on")
    assert "cut after 4 s" in (out / "log.txt").read_text(encoding="utf-8")


def test_without_an_answer_the_judge_is_skipped_and_the_reason_is_said(tmp_path: Path) -> None:
    found, out = of_own(
        tmp_path,
        python("search", "import sys; print('not searched enough'); sys.exit(9)"),
        python("judge", "print('judged')", needs=["{out}/best.yaml"]),
    )
    assert (found["search"]["result"], found["search"]["says"]) == ("exit 9", "not searched enough")
    assert (found["judge"]["result"], found["judge"]["says"]) == ("skipped", "no answer")
    assert "===== judge" not in (out / "log.txt").read_text(encoding="utf-8")


def test_a_step_that_writes_without_end_leaves_a_log_that_can_be_carried(tmp_path: Path) -> None:
    code = "for n in range(400_000): print('line', n)"
    found, out = of_own(tmp_path, python("floods", code))
    log = (out / "log.txt").read_text(encoding="utf-8")
    assert found["floods"]["says"] == "line 399999"
    assert "line 0\n" in log
    assert "cut out" in log
    assert len(log) < 2 << 20


@pytest.mark.parametrize("name", ["judge.py", "judge_side.py"])
def test_the_judge_imports_nothing_of_autotune(name: str) -> None:
    tree = ast.parse((KIT / name).read_text(encoding="utf-8"))
    imported = {
        alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names
    }
    imported |= {str(n.module) for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert not {module for module in imported if module.partition(".")[0] == "autotune"}


@pytest.mark.parametrize("sides", [2, 3, 4, 5, 6])
def test_the_judge_gives_each_side_each_place_and_each_neighbour_equally_often(
    sides: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(KIT))
    rows = import_module("judge").square(sides)
    places = Counter((place, side) for row in rows for place, side in enumerate(row))
    neighbours = Counter(pair for row in rows for pair in pairwise(row))
    assert len(places) == sides**2
    assert len(neighbours) == sides * (sides - 1)
    assert len(set(places.values())) == len(set(neighbours.values())) == 1


@pytest.mark.slow
@pytest.mark.long
def test_the_judge_finds_what_twice_the_batch_brings_where_a_step_only_waits(
    tmp_path: Path,
) -> None:
    model, best, out = (tmp_path / name for name in ("model.py", "best.yaml", "judge.json"))
    model.write_text(SLEEPS, encoding="utf-8")
    config = TrainingConfig.of({"batch_size": 4})
    write_best(best_config(config.replace(batch_size=8), config), best)
    options = ["--device", "cpu", "--block", "0.4", "--cycles", "2", "--out", str(out)]
    command = [sys.executable, str(KIT / "judge.py"), str(model), str(best), *options]
    subprocess.run(command, check=True, capture_output=True, timeout=200)
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["ratios"]["answer/default"]["ratio"] == pytest.approx(2, rel=0.15)
    assert found["ratios"]["again/default"]["ratio"] == pytest.approx(1, rel=0.15)
    assert found["ratios"]["answer/default"]["cycles"] == 4
    assert len(found["sides"]["answer"]["starts"]) == 4  # built and warmed up, twice
    assert (
        found["claimed"]["ratio"]
        == yaml.safe_load(best.read_text())["evidence"]["speedup"]["ratio"]
    )
