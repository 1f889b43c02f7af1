"""Check that a production training loop reaches the speed-up in best.yaml.

    python -m benchmarks.reproduction [NAME ...] [--space quick] [--rounds N] [--seconds S]

Each example is searched anew; an ordinary training loop then runs under the baseline and under the
best settings, in turns. It knows nothing of the search and has its settings from `autotune.load`
alone; its epochs are as they are. Each run is a fresh interpreter and takes longer than any trial.
The table has the speed-up that the search emitted, the one that the loop reached, and their
quotient; and for each side the rate that the loop reached over the emitted one, which tells on
which side they differ. `--recorded` takes recorded_best.yaml of the examples instead of a search.
Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, repeat
from pathlib import Path
from statistics import median

from autotune.configuration.best_config import BestConfig, read_best
from autotune.configuration.training_config import TrainingConfig, environ_of
from benchmarks.medians import median_interval

STUDIES = Path(__file__).resolve().parent.parent / "studies"
OFFLINE = ["digits_cnn", "photos_jpeg", "char_transformer", "chirp_gru", "tabular_mlp"]
WARM_UP_SHARE = 0.4


def main() -> None:
    """Run both kinds in turn for each example, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=OFFLINE)
    parser.add_argument("--recorded", action="store_true")
    parser.add_argument("--space", default="quick")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds of each training run")
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load before: {os.getloadavg()[0]:.2f}")
    print(
        "| study | emitted | 95 % interval | reached | 95 % interval | reached over emitted |"
        " baseline's rate | best's rate | settings |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name in arguments.names:
        with best_of(name, None if arguments.recorded else arguments.space) as file:
            print(row(name, file, arguments.rounds, arguments.seconds), flush=True)


@contextmanager
def best_of(name: str, space: str | None) -> Iterator[Path]:
    """Give the best.yaml of an example: from a new search, or the recorded one without a space."""
    if space is None:
        yield STUDIES / name / "recorded_best.yaml"
        return
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "best.yaml"
        command = [sys.executable, "-m", "autotune", "search", str(STUDIES / name / "model.py")]
        options = ["--out", str(out), "--space", space]
        subprocess.run([*command, *options], check=True, stdout=subprocess.DEVNULL, cwd=folder)
        yield out


def row(name: str, file: Path, rounds: int, seconds: float) -> str:
    """Run one example and return its row of the table."""
    answer = read_best(file)
    rates: dict[str, list[float]] = {"baseline": [], "best": []}
    for number in range(rounds):
        for kind in ("baseline", "best") if number % 2 == 0 else ("best", "baseline"):
            rates[kind].append(run(STUDIES / name, file, kind, seconds))
    return f"| {' | '.join(cells(name, answer, rates))} |"


def cells(name: str, answer: BestConfig, rates: dict[str, list[float]]) -> Sequence[str]:
    """Return the cells of a row, from the rates of the loop in samples/s."""
    ratios = [best / own for own, best in zip(rates["baseline"], rates["best"], strict=True)]
    (low, high), reached = median_interval(ratios), median(ratios)
    evidence = answer.evidence
    own = median(rates["baseline"]) / evidence.baseline.samples_per_second
    best = median(rates["best"]) / evidence.best.samples_per_second
    changed = TrainingConfig.of(answer.config).differences(
        TrainingConfig.of(evidence.baseline.config)
    )
    return (
        name,
        f"{evidence.speedup.ratio:.2f}x",
        "{:.2f} to {:.2f}".format(*evidence.speedup.ci95),
        f"{reached:.2f}x",
        f"{low:.2f} to {high:.2f}",
        f"{reached / evidence.speedup.ratio:.3f}",
        f"{own:.3f}",
        f"{best:.3f}",
        ", ".join(f"{knob} {value}" for knob, value in changed.items()),
    )


def run(study: Path, file: Path, kind: str, seconds: float) -> float:
    """Run `train` in a fresh interpreter; return its samples per second."""
    command = [sys.executable, __file__, "--train", str(study), str(file), kind, str(seconds)]
    answer = read_best(file)
    settings = answer.config if kind == "best" else answer.evidence.baseline.config
    environ = {**os.environ, **environ_of(TrainingConfig.of(settings))}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    return float(json.loads(done.stdout.splitlines()[-1]))


def train(study: Path, file: Path, kind: str, seconds: float) -> float:
    """Train in production style; return the samples per second after the warm-up."""
    import torch

    import autotune
    from autotune.production import Best

    sys.path.insert(0, str(study))
    import model as mine

    best = autotune.load(file)
    if kind == "baseline":
        answer = best.answer
        best = Best(answer.model_copy(update={"config": answer.evidence.baseline.config}))
    best.apply_to_process()
    device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    model = best.prepare(
        mine.build_model().to(device), checkpoint=getattr(mine, "checkpoint", None)
    )
    options = best.optimizer_kwargs()
    build = getattr(mine, "build_optimizer", None)
    optimizer = (
        build(model.parameters(), **options)
        if build
        else torch.optim.AdamW(model.parameters(), lr=best.lr(1e-3), **options)
    )
    for group in optimizer.param_groups if build else ():
        group["lr"] = best.lr(group["lr"])
    scaler, clip = best.scaler(device), getattr(mine, "clip_gradients", None)
    loader = best.loader(mine.build_dataset(), shuffle=True)
    start, since, samples = 0.0, 0.0, 0
    batches = best.batches(chain.from_iterable(repeat(loader)), device)
    for number, batch in enumerate(batches, start=1):
        with best.autocast(device):
            loss = mine.compute_loss(model, batch)
        scaler.scale(loss / best.accumulation_steps).backward()
        if number % best.accumulation_steps:
            continue
        if clip is not None:
            scaler.unscale_(optimizer)
            clip(model)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        now = time.perf_counter()
        start = start or now  # the first step compiles
        if since:
            samples += best.accumulation_steps * (loader.batch_size or 1)
            if now - start > seconds:
                break
        elif now - start > WARM_UP_SHARE * seconds:
            if device.type != "cpu":
                torch.accelerator.synchronize(device)
            since = time.perf_counter()
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
    return samples / (time.perf_counter() - since)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        study, file, kind, seconds = sys.argv[2:]
        print(json.dumps(train(Path(study), Path(file), kind, float(seconds))))
        sys.stdout.flush()
        os._exit(0)  # workers need not be waited for
    main()
