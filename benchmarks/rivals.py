"""Compare tools by the seconds until a configuration within 5 % of the recorded best.

    python -m benchmarks.rivals [NAME ...] [--seconds 180] [--seeds 3] [--ways auto,plain]

Each example with a table in studies/tables is searched for real, one way after the other. The ways
are this search, the same with random proposals, a plain Optuna script (plain_optuna.py) over the
same space, and loadtune if it is installed. loadtune gives one result at its end. Searches know
their time budget and keep some of it for the confirmation.

The recorded table says what a configuration is worth, so that no way is judged by its own
measurement. A configuration that does not train as well is worth 0. Two times are printed: until
such a configuration was measured, and until it was the way's own incumbent, which a user would be
given. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from autotune.configuration.training_config import TrainingConfig
from autotune.process.runner import SubprocessRunner
from autotune.searching.run.events import Answered, TrialEnded
from autotune.searching.search import search
from benchmarks.search import NEAR, TableTruth, options_for, recorded_tables, truth_of

Measured = tuple[float, TrainingConfig, TrainingConfig]
"""Seconds since the start, the measured configuration, and the way's incumbent."""
WAYS = ["auto", "RandomSampler", "plain"]
if find_spec("loadtune"):
    WAYS.append("loadtune")
ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Run each way for each example, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=recorded_tables())
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ways", default=",".join(WAYS))
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load before: {os.getloadavg()[0]:.2f}")
    print("| study | seed | way | measured | its own best | worth then, or at the end | trials |")
    print("|---|---|---|---|---|---|---|")
    for seed in range(arguments.seeds):
        for name in arguments.names:
            for way in arguments.ways.split(","):
                print(row(name, seed, way, arguments.seconds), flush=True)


def row(name: str, seed: int, way: str, seconds: float) -> str:
    """Run one way once and return its row of the table."""
    truth = truth_of(name)
    if way == "plain":
        runs = plain(truth, name, seconds, seed)
    elif way == "loadtune":
        runs = loadtune(truth, name)
    else:
        runs = ours(truth, name, way, seconds, seed)
    measured = incumbent = math.inf
    worth, trials = 0.0, 0
    for gone, config, best in runs:
        if gone > seconds:
            break
        trials, worth = trials + 1, truth.share(best)
        measured = min(measured, gone if truth.share(config) >= NEAR else math.inf)
        incumbent = min(incumbent, gone if worth >= NEAR else math.inf)
        if incumbent < math.inf:
            break

    def said(moment: float) -> str:
        return f"{moment:.0f} s" if moment < math.inf else f"not in {seconds:.0f} s"

    reached = f"{said(measured)} | {said(incumbent)}"
    return f"| {name} | {seed} | {way} | {reached} | {worth:.2f} | {trials} |"


def ours(truth: TableTruth, name: str, way: str, seconds: float, seed: int) -> Iterator[Measured]:
    """Yield each trial of a real search, and its result."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        model = ROOT / "studies" / name / "model.py"
        options = options_for(truth, Path(folder), way, seed, 1000)
        options = replace(
            options,
            workload=replace(options.workload, model_path=model),
            budget=replace(options.budget, seconds=seconds),
        )
        with SubprocessRunner(Path(folder) / "inductor") as runner:
            for event in search(options, runner):
                gone = time.monotonic() - start
                if isinstance(event, TrialEnded):
                    yield gone, event.trial.config, event.best.config
                elif isinstance(event, Answered):
                    answer = TrainingConfig.of(event.best.config)
                    yield gone, answer, answer


def plain(truth: TableTruth, name: str, seconds: float, seed: int) -> Iterator[Measured]:
    """Yield each trial of the plain script, whose incumbent is the fastest trial."""
    header = truth.table.header
    varied = {n: list(values) for n, values in header.space.items() if len(values) > 1}
    frozen = {name: values[0] for name, values in header.space.items()}
    model = ROOT / "studies" / name / "model.py"
    with tempfile.TemporaryDirectory() as folder:
        space = Path(folder) / "space.json"
        space.write_text(json.dumps(varied), encoding="utf-8")
        script = Path(__file__).with_name("plain_optuna.py")
        command = [sys.executable, str(script), str(model), str(space), str(seconds), str(seed)]
        # In a session of its own, the script can be killed with the processes of its trials.
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert process.stdout is not None
        best = (0.0, truth.table.baseline)
        try:
            for line in process.stdout:
                told = json.loads(line)
                config = TrainingConfig.of({**frozen, **told["settings"]})
                best = max(best, (told["rate"], config), key=lambda one: one[0])
                yield told["seconds"], config, best[1]
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def loadtune(truth: TableTruth, name: str) -> Iterator[Measured]:
    """Yield loadtune's result, without settings that the table does not have."""
    script, model = Path(__file__).with_name("with_loadtune.py"), ROOT / "studies" / name
    own, space = truth.table.baseline, truth.table.header.space
    command = [sys.executable, str(script), str(model / "model.py"), str(own["batch_size"])]
    told = json.loads(subprocess.check_output(command, text=True).splitlines()[-1])
    known = {n: v for n, v in told["settings"].items() if v in space.get(n, ())}
    yield told["seconds"], own.replace(**known), own.replace(**known)


if __name__ == "__main__":
    main()
