"""Measure the spread of the timed blocks of one process, and the number until timing ends.

    python -m benchmarks.blocks [--processes N] [--threads N] [--model FILE] [--against CHECKOUT]

The same small transformer is timed in one process after the other, each forked from a host of its
own as in a confirmation. Work of the parent shows as a block that is slower than the others of its
process. `--against` names another checkout of this repository, whose processes take turns with
those of this one, so that both meet the same machine. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median, stdev

HERE = Path(__file__).resolve().parent.parent
TRANSFORMER = HERE / "studies" / "char_transformer" / "model.py"
SLOW = 1.1
"""Factor over the median block of a process from which a block counts as slow."""
# Long enough for timing to end by a narrow interval.
MOST_SECONDS = 10.0


@dataclass(frozen=True)
class Timed:
    """The blocks of one process, in order."""

    seconds_per_sample: list[float]
    disturbed: int
    """Number of blocks during which other programs used the machine."""

    @property
    def spread(self) -> float:
        """Standard deviation of the blocks' times on a log scale."""
        return stdev(map(math.log, self.seconds_per_sample))

    @property
    def slow(self) -> list[int]:
        """Positions of the slow blocks, from 1."""
        bound = SLOW * median(self.seconds_per_sample)
        return [n for n, seconds in enumerate(self.seconds_per_sample, 1) if seconds > bound]


def main() -> None:
    """Time in turns and print a table; with --once, time one process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=18, help="processes per checkout")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--model", type=Path, default=TRANSFORMER)
    parser.add_argument("--against", type=Path, help="another checkout of this repository")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once:
        print(json.dumps(time_once(arguments.model, arguments.threads)))
        return
    checkouts = [HERE] if arguments.against is None else [arguments.against.resolve(), HERE]
    print(f"{os.cpu_count()} cores, load before: {os.getloadavg()[0]:.2f}")
    found: dict[Path, list[Timed]] = {checkout: [] for checkout in checkouts}
    for number in range(arguments.processes):
        for checkout in checkouts if number % 2 else reversed(checkouts):
            timed = in_checkout(checkout, arguments.model, arguments.threads)
            found[checkout].append(timed)
            places = ", ".join(map(str, timed.slow)) or "none"
            print(
                f"{checkout.name} {number + 1}: {len(timed.seconds_per_sample)} blocks, "
                f"spread {100 * timed.spread:.1f} %, slow: {places}",
                flush=True,
            )
    print(
        "\n| checkout | processes | spread of blocks | with a slow block | blocks until the end |"
    )
    print("|---|---|---|---|---|")
    for checkout, runs in found.items():
        print(row(checkout, runs))


def row(checkout: Path, runs: list[Timed]) -> str:
    """Return a checkout's row of the table."""
    blocks = [len(run.seconds_per_sample) for run in runs]
    slow = sum(bool(run.slow) for run in runs)
    spread = 100 * median(run.spread for run in runs)
    disturbed = sum(run.disturbed for run in runs)
    return (
        f"| {checkout.name} | {len(runs)} | {spread:.1f} % | {slow} of {len(runs)} "
        f"| {median(blocks):g} ({min(blocks)} to {max(blocks)}), {disturbed} disturbed in all |"
    )


def in_checkout(checkout: Path, model: Path, threads: int) -> Timed:
    """Time one process with the code of a checkout."""
    command = (sys.executable, __file__, "--once", "--model", model, "--threads", str(threads))
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        cwd=checkout,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    said = json.loads(done.stdout)
    package = Path(said.pop("package")).parent
    if package != checkout:
        sys.exit(f"{package} was measured instead of {checkout}; is it a checkout of autotune?")
    return Timed(**said)


def time_once(model: Path, threads: int) -> dict[str, object]:
    """Time one process with the autotune that is imported; return its blocks as JSON values."""
    import autotune
    from autotune.configuration.job import Job, Measure, MeasurePlan
    from autotune.configuration.training_config import TrainingConfig
    from autotune.process.runner import SubprocessRunner
    from autotune.values.outcome import Measured

    config = TrainingConfig.of({"batch_size": 16, "num_threads": threads})
    job = Job(
        Measure(MeasurePlan(max_seconds=MOST_SECONDS)),
        device="cpu",
        model_path=str(model.resolve()),
        config=config.as_dict(),
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with SubprocessRunner(folder / "inductor") as runner:
            outcome = runner.run(job, folder / "trial")
    if not isinstance(outcome, Measured):
        sys.exit(f"{model}: {outcome}")
    blocks = outcome.measurement.blocks
    return {
        "package": str(Path(autotune.__file__).resolve().parent),
        "seconds_per_sample": [block.seconds_per_sample for block in blocks],
        "disturbed": sum(block.is_disturbed for block in blocks),
    }


if __name__ == "__main__":
    main()
