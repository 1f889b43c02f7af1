"""Search unchanged scripts, each as the documentation of a library writes a training.

    python -m benchmarks.zoo [NAME ...] [--seconds S] [--by-hand] [--save]

Each script is searched by one command without options but the budget. The table tells for each
what came of it, after how many configurations and seconds, how many configurations failed (out of
memory, crashed, or a setting that did not take effect), and which settings were found. With
`--by-hand` bfloat16, compiling and a doubled batch, each alone, are compared with the script as it
is. A dash is a setting that cannot be applied or fails, or a search without an answer; zoo-NAME.log
in the folder for temporary files says why. A script whose package is not installed is left out, and
the table says so. `--save` writes the rows to benchmarks/results/zoo.json, beside those of other
scripts. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.configuration.best_config import read_best, write_best
from benchmarks.zoo import images

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results" / "zoo.json"
COLUMNS = [
    "script",
    "answer",
    "judged by",
    "configurations",
    "failed",
    "seconds",
    "settings",
    "bf16",
    "compiled",
    "batch x 2",
]


@dataclass(frozen=True)
class Entry:
    """A script, its arguments and the packages that it needs."""

    name: str
    arguments: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    batch: str = ""
    """Its way to another batch size, as `--map` takes it; empty if it has none."""


ZOO = (
    Entry("plain_loop", needs=("torchvision",), batch="--batch-size"),
    Entry("memory_map", batch="--batch_size="),
    Entry("by_hand"),
    Entry(
        "hf_trainer",
        ("--output_dir", "out", "--report_to", "none", "--use_cpu", "--num_train_epochs", "30"),
        ("transformers", "accelerate"),
        "--per_device_train_batch_size",
    ),
    Entry("accelerate_loop", ("--cpu",), ("accelerate",), "--per_device_train_batch_size"),
    Entry("lightning_module", needs=("lightning",), batch="--batch_size"),
    Entry("timm_task", ("--data-dir", "images"), ("timm",), "--batch-size"),
    Entry("reference_style", ("--data-path", "images"), ("torchvision",), "--batch-size"),
    Entry("fastai_learner", needs=("fastai",)),
    Entry("skorch_net", needs=("skorch",)),
    Entry("graphs", needs=("torch_geometric",)),
    Entry("segmentation", needs=("segmentation_models_pytorch",), batch="--batch_size"),
    Entry("reinforcement", needs=("stable_baselines3",)),
    Entry("hydra_app", needs=("hydra",), batch="train.batch_size"),
)


def main() -> None:
    """Search the scripts one after the other and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=[entry.name for entry in ZOO])
    parser.add_argument("--seconds", type=int, default=240, help="time budget of each search")
    parser.add_argument("--by-hand", action="store_true", help="compare bf16, compile, batch x 2")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/zoo.json")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load before: {load:.2f}")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    rows = []
    for entry in ZOO:
        if entry.name in arguments.names:
            rows.append(row(entry, arguments.seconds, arguments.by_hand))
            print(f"| {' | '.join(rows[-1])} |", flush=True)
            if arguments.save:
                save(rows, load, f"python -m benchmarks.zoo {' '.join(sys.argv[1:])}")


def row(entry: Entry, seconds: int, by_hand: bool) -> list[str]:
    """Search one script in a folder of its own and return its row of the table."""
    missing = [name for name in entry.needs if importlib.util.find_spec(name) is None]
    if missing:
        return [entry.name, f"not run: {', '.join(missing)} is not installed", *[""] * 9]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "images" in entry.arguments:
            images.write(folder / "images")
        start = time.perf_counter()
        run = autotune(folder, entry, "search", "--time-budget", f"{seconds}s")
        took = f"{time.perf_counter() - start:.0f}"
        log = Path(tempfile.gettempdir()) / f"zoo-{entry.name}.log"
        log.write_text(run.stderr)
        tries = list(compared(folder, entry, log)) if by_hand else [""] * 3
        if run.returncode:
            return [entry.name, refusal(run), "", "", "", took, "", "", *tries]
        return [entry.name, *told(json.loads(run.stdout), took), *tries]


def autotune(
    folder: Path, entry: Entry, command: str, *options: str
) -> subprocess.CompletedProcess[str]:
    """Run a command of autotune on an entry."""
    script = HERE / "scripts" / f"{entry.name}.py"
    line = [sys.executable, "-m", "autotune", command, str(script), *options, "--json"]
    return subprocess.run(
        [*line, "--", *entry.arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def refusal(run: subprocess.CompletedProcess[str]) -> str:
    """Return the exit code and the last line that a search said."""
    lines = run.stderr.strip().splitlines() or [""]
    return f"exit {run.returncode}: {lines[-1]}"


def told(found: dict, took: str) -> list[str]:
    """Return the answer and its judge, configurations measured and failed, seconds and settings."""
    evidence, config = found["best"]["evidence"], found["best"]["config"]
    searched = evidence["searched"]
    counts = [str(searched["measured"]), str(searched["failed"])]
    speedup, baseline = evidence["speedup"], evidence["baseline"]["config"]
    low, high = speedup["ci95"]
    changed = [f"{name} {value}" for name, value in config.items() if value != baseline[name]]
    answer = f"{speedup['ratio']:.2f}x ({low:.2f} to {high:.2f})" if changed else "kept"
    judge = found["best"]["constraints"]["accuracy"].get("compared_by", "nothing")
    return [answer, judge, *counts, took, ", ".join(changed)]


def compared(folder: Path, entry: Entry, log: Path) -> Iterator[str]:
    """Give the ratio of each setting that a person would try by hand; none without an answer."""
    files = list(folder.rglob("best.yaml"))
    if not files:
        yield from ["-"] * 3
        return
    found = read_best(files[0])
    baseline = found.evidence.baseline.config
    for change in (
        {"amp_dtype": "bfloat16"},
        {"compile_mode": "default"},
        {"batch_size": 2 * baseline["batch_size"]},
    ):
        file = folder / "by-hand.yaml"
        write_best(found.model_copy(update={"config": {**baseline, **change}}), file)
        maps = ["--map", f"batch_size={entry.batch}"] if entry.batch else []
        run = autotune(folder, entry, "compare", str(file), "--rounds", "6", *maps)
        with log.open("a") as lines:
            lines.write(f"\nby hand: {change}\n{run.stderr}")
        yield "-" if run.returncode else ratio(json.loads(run.stdout))


def ratio(comparison: dict) -> str:
    """Return a comparison's ratio and interval."""
    low, high = comparison["ci95"]
    return f"{comparison['ratio']:.2f} ({low:.2f} to {high:.2f})"


def save(rows: Sequence[Sequence[str]], load: float, command: str) -> None:
    """Write rows to benchmarks/results in the place of older ones; `benchmarks.page` reads them.

    What was set by hand before stays in a row without it.
    """
    known = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"] if RESULTS.exists() else []
    by_name = {each[0]: list(each) for each in known}
    for new in rows:
        by_hand = new[-3:] if any(new[-3:]) else by_name.get(new[0], new)[-3:]
        by_name[new[0]] = [*new[:-3], *by_hand]
    table = {
        "title": "A zoo of scripts, each searched by one command",
        "about": "Scripts of benchmarks/zoo/scripts, written as the documentation of each library"
        " writes a training, searched without any option but the budget. The data are small and"
        " made up; reinforcement balances a simulated pole. `failed` counts the"
        " configurations that ran out of memory, crashed, or hung, or of which a setting did not"
        " take effect. Exit 9 is a search that says that its budget was too short.",
        "command": command,
        "recorded": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores, CPU",
        "load": f"{load:.2f} before the first search of the last command",
        "columns": COLUMNS,
        "rows": [by_name[entry.name] for entry in ZOO if entry.name in by_name],
    }
    RESULTS.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
