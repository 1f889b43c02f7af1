"""Seconds until a search is within 5 % of the recorded best, side by side.

    python benchmarks/rivals.py [NAME ...] [--seconds 180] [--seeds 3] [--ways auto,plain]

For each example with a table in studies/tables: this search, its runner with random proposals, a
plain Optuna script (plain_optuna.py) over the same space, and loadtune where it is installed, which
answers once, at its end. One after the other, for real. Searches are told how many seconds they
have, and keep some of them for their answer. The table says what each configuration is worth, and
nothing if it does not train as well, so that nobody is judged by their own measurement.
Two times are told: until such a configuration was measured, and until it was what the way itself
took for the best, which is what a person would be given. Run it where nothing else runs.
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

from search import NEAR, TableTruth, options_for, recorded_tables, truth_of

from autotune.config import TrainingConfig
from autotune.tuning.events import Answered, TrialEnded
from autotune.tuning.running.runner import SubprocessRunner
from autotune.tuning.search import search

Measured = tuple[float, TrainingConfig, TrainingConfig]
"""Seconds since the start, what was measured, and what is the best so far by the way's own word."""
WAYS = ["auto", "random", "plain"]
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
    """One run of one way."""
    truth = truth_of(name)
    if way == "plain":
        runs = plain(truth, name, seconds, seed)
    elif way == "loadtune":
        runs = loadtune(truth, name)
    else:
        runs = ours(truth, name, way, seconds, seed)
    measured = led = math.inf
    worth, trials = 0.0, 0
    for gone, config, best in runs:
        if gone > seconds:
            break
        trials, worth = trials + 1, truth.share(best)
        measured = min(measured, gone if truth.share(config) >= NEAR else math.inf)
        led = min(led, gone if worth >= NEAR else math.inf)
        if led < math.inf:
            break

    def said(reached: float) -> str:
        return f"{reached:.0f} s" if reached < math.inf else f"not in {seconds:.0f} s"

    return f"| {name} | {seed} | {way} | {said(measured)} | {said(led)} | {worth:.2f} | {trials} |"


def ours(truth: TableTruth, name: str, way: str, seconds: float, seed: int) -> Iterator[Measured]:
    """Each trial of a real search, and its answer."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        model = ROOT / "studies" / name / "model.py"
        options = options_for(truth, Path(folder), way, seed, 1000)
        options = replace(options, model_path=model, time_budget_seconds=seconds)
        with SubprocessRunner(Path(folder) / "inductor") as runner:
            for event in search(options, runner):
                gone = time.monotonic() - start
                if isinstance(event, TrialEnded):
                    yield gone, event.trial.config, event.best.config
                elif isinstance(event, Answered):
                    answer = TrainingConfig.of(event.best.config)
                    yield gone, answer, answer


def plain(truth: TableTruth, name: str, seconds: float, seed: int) -> Iterator[Measured]:
    """Each trial of the plain script, whose best is the fastest."""
    header = truth.table.header
    varied = {n: list(values) for n, values in header.space.items() if len(values) > 1}
    frozen = {name: values[0] for name, values in header.space.items()}
    model = ROOT / "studies" / name / "model.py"
    with tempfile.TemporaryDirectory() as folder:
        space = Path(folder) / "space.json"
        space.write_text(json.dumps(varied), encoding="utf-8")
        script = Path(__file__).with_name("plain_optuna.py")
        command = [sys.executable, str(script), str(model), str(space), str(seconds), str(seed)]
        # A session of its own: its trials are processes, too, and must not outlive it.
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
    """The one configuration that it answers, less what the table does not have."""
    script, model = Path(__file__).with_name("with_loadtune.py"), ROOT / "studies" / name
    own, space = truth.table.baseline, truth.table.header.space
    command = [sys.executable, str(script), str(model / "model.py"), str(own["batch_size"])]
    told = json.loads(subprocess.check_output(command, text=True).splitlines()[-1])
    known = {n: v for n, v in told["settings"].items() if v in space.get(n, ())}
    yield told["seconds"], own.replace(**known), own.replace(**known)


if __name__ == "__main__":
    main()
