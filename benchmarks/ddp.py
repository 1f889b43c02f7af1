"""Time the start of a trial of two processes, forked and by torch's launcher, and its rate.

    python -m benchmarks.ddp [REPEATS]

Each row is the median of so many starts (5), which take turns: one process, forked from the warm
host and as a new interpreter; two gloo processes on two cores, forked and by torch's launcher. From
the call of the runner to its outcome, less the seconds of the timed blocks and the warm-up. Of the
launcher's own part nothing is trained: its two processes end at once. The rate of forked processes
over that of launched ones, of the same round, tells whether both measure the same.
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
PLAN = MeasurePlan(precision=0.0, looks=(9,))
FORKED, LAUNCHED = "two processes, forked", "two processes, launched"
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


def started(runner: SubprocessRunner, job: Job, folder: Path) -> tuple[float, float]:
    """Return the seconds of a trial beside its training, its end included, and its samples/s."""
    begun = time.monotonic()
    outcome = runner.run(job, folder)
    taken = time.monotonic() - begun
    if not isinstance(outcome, Measured):
        raise SystemExit(f"not measured: {describe(outcome)}")
    run = outcome.measurement
    trained = sum(run.warmup_step_seconds) + sum(block.seconds for block in run.blocks)
    return taken - trained, run.samples_per_second


def launcher_seconds() -> tuple[float, float]:
    """Return the seconds that torch's launcher takes for two processes that end at once."""
    begun = time.monotonic()
    command = [sys.executable, *LAUNCH, sys.executable, "-c", "pass"]
    subprocess.run(command, check=True, capture_output=True)
    return time.monotonic() - begun, 0.0


def rows(repeats: int, folder: Path) -> dict[str, list[tuple[float, float]]]:
    """Return the seconds and the rates of each kind of start."""
    with SubprocessRunner(folder / "inductor") as runner:
        kinds: dict[str, Callable[[Path], tuple[float, float]]] = {
            "forked": lambda place: started(runner, job_of(1, "one"), place),
            "interpreter": lambda place: started(runner, job_of(1, None), place),
            FORKED: lambda place: started(runner, job_of(2, "two"), place),
            LAUNCHED: lambda place: started(runner, job_of(2, None), place),
            "launcher alone": lambda _: launcher_seconds(),
        }
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
        for number in range(repeats):
            for name, kind in kinds.items():
                # Files are in memory, and a host is warm, from the first on.
                kind(folder / f"{number}-{name.replace(' ', '-')}-first")
                found[name].append(kind(folder / f"{number}-{name.replace(' ', '-')}"))
    return found


def main() -> None:
    """Print the median seconds of each kind of start, and the ratio of rates, as JSON."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as folder:
        found = rows(repeats, Path(folder))
    seconds = {name: [round(one, 2) for one, _ in starts] for name, starts in found.items()}
    pairs = zip(found[FORKED], found[LAUNCHED], strict=True)
    ratios = [round(forked / launched, 3) for (_, forked), (_, launched) in pairs]
    told = {
        "median_seconds": {name: round(median(every), 2) for name, every in seconds.items()},
        "seconds": seconds,
        "rate_forked_over_launched": {"median": round(median(ratios), 3), "ratios": ratios},
    }
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
