"""Scripts that `autotune run` executes under the settings of a best.yaml."""

import re
import subprocess
from pathlib import Path

from autotune.configuration.best_config import write_best
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.base import Value
from children import autotune
from factories import best_config

_PLAN = re.compile("applying: |not applying: ")
_BEFORE = re.compile(f"{_PLAN.pattern}|.*(made for something else|applying only settings)")
SCRIPTS = Path(__file__).parent / "scripts"
BASELINE = TrainingConfig.of({"batch_size": 16})


def best(folder: Path, **settings: Value) -> Path:
    """A best.yaml with these settings."""
    path = folder / "best.yaml"
    write_best(best_config(BASELINE.replace(**settings), BASELINE), path)
    return path


def run(
    folder: Path, *arguments: str | Path, **settings: Value
) -> subprocess.CompletedProcess[str]:
    return autotune(folder, "run", best(folder, **settings), *arguments)


def report_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return what autotune said at the end of a script: what it applied, and what not."""
    own = (line for line in done.stderr.splitlines() if line.startswith("autotune: "))
    return [line for _, line in (line.split(": ", 1) for line in own) if not _BEFORE.match(line)]


def plan_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return what autotune said that it would apply, and what not, before the script began."""
    own = (line for line in done.stderr.splitlines() if line.startswith("autotune: "))
    return [line for _, line in (line.split(": ", 1) for line in own) if _PLAN.match(line)]
