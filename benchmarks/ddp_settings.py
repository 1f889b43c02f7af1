"""Compare what settings of DDP gain here with what a script written by hand says of them.

    python -m benchmarks.ddp_settings [--rounds 12] [--out FILE]

Two gloo processes on two cores train a model with 20 MB of gradients. In each round, every setting
is timed once by a trial and once by `benchmarks/ddp_by_hand.py` under torchrun, each in fresh
processes, in another order. A ratio is the throughput under a setting over that under PyTorch's
own, of the same round and tool. The last row is the script's alone: trials exchange gradients once
a step, so it tells what exchanging them after each of four batches would gain.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from autotune.configuration.job import Job, Measure, MeasurePlan
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs.base import Value
from autotune.process.runner import SubprocessRunner
from autotune.values.outcome import Measured, describe
from benchmarks.medians import log_median, median_interval

FOLDER = Path(__file__).parent
PLAN = MeasurePlan(block_counts=(6,), block_seconds=0.25, precision=0.0)
LAUNCH = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
OWN = "PyTorch's own"
ONCE, EACH = "four batches a step, exchanged once", "four batches a step, exchanged after each"


@dataclass(frozen=True)
class Row:
    """A setting, as a trial has it and as the script has it; the trial may have no word for it."""

    name: str
    knobs: Mapping[str, Value] | None
    by_hand: Mapping[str, Any]
    reference: str = OWN


ROWS = (
    Row(OWN, {}, {}),
    *(Row(f"buckets of {n} MiB", {"ddp_bucket_mb": n}, {"bucket_cap_mb": n}) for n in (1, 5, 100)),
    Row("views", {"gradient_as_bucket_view": True}, {"gradient_as_bucket_view": True}),
    Row("float16", {"ddp_comm_dtype": "float16"}, {"hook": "float16"}),
    Row("bfloat16", {"ddp_comm_dtype": "bfloat16"}, {"hook": "bfloat16"}),
    Row(ONCE, {"accumulation_steps": 4}, {"accumulate": 4}),
    Row(EACH, None, {"accumulate": 4, "exchange_each": True}, reference=ONCE),
)
Rates = dict[str, list[float]]


def main() -> None:
    """Time the rows, and print a table of ratios as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--out", type=Path, help="also write the JSON to this file")
    arguments = parser.parse_args()
    ours: Rates = {row.name: [] for row in ROWS if row.knobs is not None}
    by_hand: Rates = {row.name: [] for row in ROWS}
    with tempfile.TemporaryDirectory() as folder, SubprocessRunner(Path(folder)) as runner:
        for number in range(arguments.rounds):
            for row in Random(number).sample(ROWS, len(ROWS)):
                if row.knobs is not None:
                    place = Path(folder) / f"{number}-{ROWS.index(row)}"
                    ours[row.name].append(trial_rate(runner, row.knobs, place))
                by_hand[row.name].append(script_rate(row.by_hand))
    text = json.dumps({"rounds": arguments.rounds, "rows": table(ours, by_hand)}, indent=1)
    sys.stdout.write(text + "\n")
    if arguments.out is not None:
        arguments.out.write_text(text + "\n", encoding="utf-8")


def trial_rate(runner: SubprocessRunner, knobs: Mapping[str, Value], folder: Path) -> float:
    """Return the samples per second of a trial of two processes."""
    config = TrainingConfig.of({"batch_size": 32, "num_threads": 1, **knobs})
    job = Job(
        task=Measure(PLAN),
        device="cpu",
        model_path=str((FOLDER / "ddp_model.py").resolve()),
        config=config.as_dict(),
        host=None,
        fresh_data=True,
        processes=2,
    )
    outcome = runner.run(job, folder)
    if not isinstance(outcome, Measured):
        raise SystemExit(f"not measured: {describe(outcome)}")
    return outcome.measurement.samples_per_second


def script_rate(settings: Mapping[str, Any]) -> float:
    """Return the samples per second of the script under torchrun."""
    words = [*LAUNCH, str(FOLDER / "ddp_by_hand.py"), json.dumps(dict(settings))]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    seconds = median(json.loads(done.stdout.splitlines()[-1]))
    samples: int = 2 * 32 * settings.get("accumulate", 1)
    return samples / seconds


def table(ours: Rates, by_hand: Rates) -> list[dict[str, Any]]:
    """Return the ratios of each setting by both, with 95 % intervals, and how far they differ."""
    rows = []
    for row in ROWS[1:]:
        told: dict[str, Any] = {"setting": row.name, "over": row.reference}
        for name, rates in (("trials", ours), ("by hand", by_hand)):
            if row.name in rates:
                pairs = zip(rates[row.name], rates[row.reference], strict=True)
                ratios = [one / other for one, other in pairs]
                low, high = median_interval(ratios)
                told[name] = round(log_median(ratios), 3)
                told[f"{name}, ci95"] = [round(low, 3), round(high, 3)]
        if "trials" in told:
            told["trials over by hand"] = round(told["trials"] / told["by hand"], 3)
        rows.append(told)
    return rows


if __name__ == "__main__":
    main()
