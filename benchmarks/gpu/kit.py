"""Measure autotune on a GPU, in four commands of five, five, nine and nine minutes.

    python benchmarks/gpu/kit.py part1 --out DIR      tests, search of a training script, judge
    python benchmarks/gpu/kit.py part2 --out DIR      search of a model.py, judge, probes
    python benchmarks/gpu/kit.py rest --out DIR       a larger network, rival, A/A
    python benchmarks/gpu/kit.py bert --out DIR       BERT-base's shape, batches bounded by memory
    python benchmarks/gpu/kit.py part2 --out DIR --only "resnet18 search,resnet18 judge"
    python benchmarks/gpu/kit.py part1 --out DIR --device cpu --smoke     a check that all runs

Each step is a group of processes with a timeout within that of its part. All of them are killed at
its end, and its result is written before the next one begins. DIR holds at most eight files:
summary.txt, steps.jsonl, log.txt and the steps' results. The kit needs neither network nor make.
Wheels in `.whl/` at the root of the checkout (wheels.sh) are installed into a temporary folder.

A JSON file in place of a part is a list of steps, each with `name`, `command` and `seconds`. They
run within nine minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

from parts import PARTS, SECONDS, install, interpreted, with_program
from steps import Done, Kit, Step

REPO = Path(__file__).resolve().parents[2]
MOST_FILES = 8


def main() -> None:
    """Run the steps of a part; exit with 1 if one of them failed or was cut."""
    arguments = parsed()
    out: Path = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        sys.exit(f"{arguments.out} is not empty. Name a new folder for each run.")
    steps = steps_of(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    start = time.monotonic()
    scratch = Path(tempfile.mkdtemp(prefix="kit-"))
    done: list[Done] = []
    try:
        deadline = start + SECONDS.get(arguments.part, SECONDS["rest"])
        kit = made(arguments, out, scratch, deadline)
        for step in steps:
            print(f"{step.name} ...", file=sys.stderr, flush=True)
            done.append(kit.run(step))
            write_summary(out, done, time.monotonic() - start)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print((out / "summary.txt").read_text(encoding="utf-8"), end="")
    names = sorted(path.name for path in out.iterdir())
    if len(names) > MOST_FILES:
        print(f"more than {MOST_FILES} files: {', '.join(names)}", file=sys.stderr)
    sys.exit(0 if all(one.result in ("ok", "skipped") for one in done) else 1)


def parsed() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("part", help="part1, part2, rest, bert, or a JSON file of steps")
    parser.add_argument("--out", type=Path, required=True, help="an empty or new folder")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--smoke", action="store_true", help="tiny shapes and budgets")
    parser.add_argument(
        "--wheels", type=Path, default=REPO / ".whl", help="default: .whl at the root"
    )
    parser.add_argument(
        "--autotune", type=Path, help="a program to run in place of `python -m autotune`"
    )
    parser.add_argument("--only", help="names of steps, by commas; install always runs")
    return parser.parse_args()


def steps_of(arguments: argparse.Namespace) -> list[Step]:
    """Return the steps that were asked for."""
    if arguments.part in PARTS:
        own = PARTS[arguments.part](arguments.device, arguments.smoke)
    else:
        try:
            listed = json.loads(Path(arguments.part).read_text(encoding="utf-8"))
            own = [Step(**{**one, "command": interpreted(one["command"])}) for one in listed]
        except (OSError, ValueError, TypeError, KeyError) as error:
            sys.exit(f"{arguments.part} is neither one of {', '.join(PARTS)} nor steps: {error}")
    if arguments.autotune:
        own = [with_program(step, arguments.autotune.resolve()) for step in own]
    steps = [install(arguments.wheels), *own]
    if not arguments.only:
        return steps
    wanted = {"install", *(name.strip() for name in arguments.only.split(","))}
    if unknown := wanted - {step.name for step in steps} - {"install"}:
        known = ", ".join(step.name for step in steps)
        sys.exit(f"--only: no step {', '.join(sorted(unknown))}. Steps: {known}.")
    return [step for step in steps if step.name in wanted]


def made(arguments: argparse.Namespace, out: Path, scratch: Path, deadline: float) -> Kit:
    """Return the kit, with its scratch folder laid out."""
    for name in ("site", "tmp"):
        (scratch / name).mkdir()
    (scratch / "workloads").symlink_to(REPO / "benchmarks" / "gpu" / "workloads")
    paths = [str(scratch / "site"), str(REPO), *filter(None, [os.environ.get("PYTHONPATH")])]
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(scratch / "tmp"),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
    }
    if arguments.smoke:
        environ |= {"KIT_SMOKE": "1", "OMP_NUM_THREADS": "1"}
    return Kit(out, scratch, REPO, arguments.device, environ, deadline)


def write_summary(out: Path, done: list[Done], seconds: float) -> None:
    """Write the results so far to summary.txt, on one screen."""
    words = ["python", "benchmarks/gpu/kit.py", *sys.argv[1:]]
    versions = [f"Python {sys.version.split()[0]}"]
    for name in ("torch", "triton", "optuna"):
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:  # only among the carried wheels, or missing
            continue
    now = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    lines = [
        shlex.join(words).replace(str(out), out.name),
        f"{', '.join(versions)}; {os.cpu_count()} cores; {now} UTC",
        "",
        *(one.line for one in done),
        "",
        f"{len(done)} steps, {seconds:.0f} s",
    ]
    (out / "summary.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
