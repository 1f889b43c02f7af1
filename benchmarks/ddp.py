"""Time the start of a trial of two processes against one, and the launcher's part of it.

    python -m benchmarks.ddp [REPEATS]

Each row is the median of so many starts (5), which take turns: a forked process, as trials of one
process are started; a new interpreter; torch's launcher with two gloo processes on two cores. From
the call of the runner to its outcome, less the seconds of the timed blocks and the warm-up. Of the
launcher's own part nothing is trained: its two processes end at once.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from autotune.configuration.job import Job, Measure, MeasurePlan
from autotune.configuration.training_config import TrainingConfig
from autotune.processes.runner import SubprocessRunner
from autotune.values.outcome import Measured, describe

MODEL = Path(__file__).parents[1] / "studies" / "digits_cnn" / "model.py"
PLAN = MeasurePlan(warmup_steps=1, block_seconds=0.02, looks=(6,), max_seconds=1.0)
LAUNCH = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python")


def job_of(processes: int, host: str | None) -> Job:
    """Return a short job on the digits."""
    return Job(
        task=Measure(PLAN),
        device="cpu",
        model_path=str(MODEL.resolve()),
        config=TrainingConfig.of({"batch_size": 32, "num_threads": 1}).as_dict(),
        host=host,
        fresh_data=True,
        processes=processes,
    )


def start_seconds(runner: SubprocessRunner, job: Job, folder: Path) -> float:
    """Return the seconds of a trial beside its training, the end of its processes included."""
    begun = time.monotonic()
    outcome = runner.run(job, folder)
    taken = time.monotonic() - begun
    if not isinstance(outcome, Measured):
        raise SystemExit(f"not measured: {describe(outcome)}")
    run = outcome.measurement
    return taken - sum(run.warmup_step_seconds) - sum(block.seconds for block in run.blocks)


def launcher_seconds() -> float:
    """Return the seconds that torch's launcher takes for two processes that end at once."""
    begun = time.monotonic()
    command = [sys.executable, *LAUNCH, sys.executable, "-c", "pass"]
    subprocess.run(command, check=True, capture_output=True)
    return time.monotonic() - begun


def rows(repeats: int, folder: Path) -> dict[str, list[float]]:
    """Return the seconds of each kind of start."""
    with SubprocessRunner(folder / "inductor") as runner:
        kinds: dict[str, Callable[[Path], float]] = {
            "forked": lambda place: start_seconds(runner, job_of(1, "search"), place),
            "interpreter": lambda place: start_seconds(runner, job_of(1, None), place),
            "two processes": lambda place: start_seconds(runner, job_of(2, None), place),
            "launcher alone": lambda _: launcher_seconds(),
        }
        for kind in kinds.values():  # files are in memory from then on
            kind(folder / "first")
        found: dict[str, list[float]] = {name: [] for name in kinds}
        for number in range(repeats):
            for name, kind in kinds.items():
                found[name].append(kind(folder / f"{number}-{name.replace(' ', '-')}"))
    return found


def main() -> None:
    """Print the median seconds of each kind of start as JSON."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as folder:
        found = rows(repeats, Path(folder))
    medians = {name: round(median(seconds), 2) for name, seconds in found.items()}
    every = {name: [round(one, 2) for one in seconds] for name, seconds in found.items()}
    print(json.dumps({"median_seconds": medians, "seconds": every}, indent=1))


if __name__ == "__main__":
    main()
