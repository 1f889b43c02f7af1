"""Check that a production training loop reaches the speed-up in recorded_best.yaml.

    python -m benchmarks.reproduction [NAME ...] [--rounds N] [--seconds S]

For each example, an ordinary training loop runs under the baseline and under the best settings, in
turns. It knows nothing of the search and has its settings from `autotune.load` alone. Each run is a
fresh interpreter and takes longer than any trial. The ratio of both should lie within 5 % of the
recorded one. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from itertools import chain, repeat
from pathlib import Path
from statistics import median

from autotune.configuration.best_config import read_best
from autotune.configuration.training_config import TrainingConfig, environ_of
from autotune.values.statistics import median_interval

STUDIES = Path(__file__).resolve().parent.parent / "studies"
OFFLINE = ["digits_cnn", "photos_jpeg", "char_transformer"]
WARM_UP_SHARE = 0.4
GOAL = 0.05


def main() -> None:
    """Run both kinds in turn for each example, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=OFFLINE)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds of each training run")
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load before: {os.getloadavg()[0]:.2f}")
    print("| study | emitted | reproduced | 95 % interval | difference | within 5 % |")
    print("|---|---|---|---|---|---|")
    for name in arguments.names:
        print(row(name, arguments.rounds, arguments.seconds), flush=True)


def row(name: str, rounds: int, seconds: float) -> str:
    """Run one example and return its row of the table."""
    import autotune

    file = STUDIES / name / "recorded_best.yaml"
    emitted = autotune.load(file).answer.evidence.speedup.ratio
    ratios = []
    for number in range(rounds):
        order = ("baseline", "best") if number % 2 == 0 else ("best", "baseline")
        rates = {kind: run(file, kind, seconds) for kind in order}
        ratios.append(rates["best"] / rates["baseline"])
    (low, high), ratio = median_interval(ratios), median(ratios)
    off = ratio / emitted - 1
    verdict = "yes" if abs(off) <= GOAL else "no"
    cells = [name, f"{emitted:.2f}x", f"{ratio:.2f}x", f"{low:.2f} to {high:.2f}"]
    return f"| {' | '.join(cells)} | {100 * off:+.1f} % | {verdict} |"


def run(file: Path, kind: str, seconds: float) -> float:
    """Run `train` in a fresh interpreter; return its samples per second."""
    command = [sys.executable, __file__, "--train", str(file), kind, str(seconds)]
    answer = read_best(file)
    settings = answer.config if kind == "best" else answer.evidence.baseline.config
    environ = {**os.environ, **environ_of(TrainingConfig.of(settings))}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    return float(json.loads(done.stdout.splitlines()[-1]))


def train(file: Path, kind: str, seconds: float) -> float:
    """Train in production style; return the samples per second after the warm-up."""
    import torch

    import autotune
    from autotune.production import Best

    sys.path.insert(0, str(file.parent))
    import model as mine

    best = autotune.load(file)
    if kind == "baseline":
        answer = best.answer
        best = Best(answer.model_copy(update={"config": answer.evidence.baseline.config}))
    best.apply_to_process()
    device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    model = best.prepare(mine.build_model().to(device))
    options = best.optimizer_kwargs()
    build = getattr(mine, "build_optimizer", None)
    optimizer = (
        build(model.parameters(), **options)
        if build
        else torch.optim.AdamW(model.parameters(), lr=best.lr(1e-3), **options)
    )
    for group in optimizer.param_groups if build else ():
        group["lr"] = best.lr(group["lr"])
    scaler = best.scaler(device)
    loader = best.loader(mine.build_dataset(), shuffle=True)
    start, since, samples = time.perf_counter(), 0.0, 0
    for batch in chain.from_iterable(repeat(loader)):
        optimizer.zero_grad(set_to_none=True)
        with best.autocast(device):
            loss = mine.compute_loss(model, best.transfer(batch, device))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        now = time.perf_counter()
        if since:
            samples += loader.batch_size or 1
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
        print(json.dumps(train(Path(sys.argv[2]), sys.argv[3], float(sys.argv[4]))))
        sys.stdout.flush()
        os._exit(0)  # workers need not be waited for
    main()
