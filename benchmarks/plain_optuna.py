"""A tuning script with Optuna alone, for comparison: each trial is a fresh interpreter.

    python -m benchmarks.plain_optuna MODEL.py SPACE.json SECONDS SEED

It prints a JSON line per trial: seconds since the start, the settings, and samples per second of 20
steps. It checks neither memory nor accuracy, and it uses nothing of autotune.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path

WARM_UP_STEPS, TIMED_STEPS = 5, 20


def tune(model: Path, space: dict[str, list[object]], seconds: float, seed: int) -> None:
    """Run trials until the time is up: ask, time in a process of its own, tell."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        trial = study.ask()
        settings = {n: trial.suggest_categorical(n, values) for n, values in space.items()}
        command = [sys.executable, __file__, "--time", str(model), json.dumps(settings)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            continue
        rate = float(done.stdout.splitlines()[-1])
        study.tell(trial, rate)
        seconds_gone = round(time.monotonic() - start, 2)
        print(json.dumps({"seconds": seconds_gone, "settings": settings, "rate": rate}), flush=True)


def time_steps(model: Path, settings: dict[str, object]) -> float:
    """Time a few training steps; return the samples per second."""
    import torch

    sys.path.insert(0, str(model.parent))
    spec = importlib.util.spec_from_file_location("model", model)
    assert spec is not None
    assert spec.loader is not None
    mine = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mine)
    torch.set_num_threads(int(str(settings.get("num_threads") or torch.get_num_threads())))
    layout = torch.channels_last if settings.get("channels_last") else torch.preserve_format
    network = mine.build_model().to(memory_format=layout)
    fused = settings.get("optimizer_impl") == "fused"
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, fused=fused)
    workers, size = int(str(settings["num_workers"])), int(str(settings["batch_size"]))
    torch.set_float32_matmul_precision(str(settings.get("float32_matmul_precision", "highest")))
    loader = torch.utils.data.DataLoader(
        mine.build_dataset(),
        batch_size=size,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    batches, start = iter(loader), 0.0
    for step in range(WARM_UP_STEPS + TIMED_STEPS):
        if step == WARM_UP_STEPS:
            start = time.perf_counter()
        try:
            batch = next(batches)
        except StopIteration:
            batches = iter(loader)
            batch = next(batches)
        with torch.autocast("cpu", torch.bfloat16, enabled=settings.get("amp_dtype") is not None):
            loss = mine.compute_loss(network, batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    return TIMED_STEPS * size / (time.perf_counter() - start)


if __name__ == "__main__":
    if sys.argv[1] == "--time":
        print(time_steps(Path(sys.argv[2]), json.loads(sys.argv[3])))
    else:
        space = json.loads(Path(sys.argv[2]).read_text())
        tune(Path(sys.argv[1]), space, float(sys.argv[3]), int(sys.argv[4]))
