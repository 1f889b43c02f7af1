"""Measure the start of the command line, and the memory of the parent process of a search.

    python -m benchmarks.startup

The start is compared with the smallest click program; the commands alternate, so that a busy
machine slows all of them alike. Then follow the modules that autotune's help imports beyond that
program's, and the peak resident memory of the parent process of a search.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from statistics import median

ROUNDS = 15
BARE = "import click\n@click.group()\ndef cli(): pass\ncli()\n"
PARENT = """
    import resource, sys
    from autotune.cli import cli
    try:
        cli(["search", "model.py", "--space", "{space}", "--trials", "3", "--progress", "none"])
    except SystemExit:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(peak // 1024, "torch" in sys.modules)
"""
SPACE = "batch_size: [32, 64]\nnum_threads: [1]\n"


def main() -> None:
    """Measure all and print the results."""
    bare = [sys.executable, "-c", BARE, "--help"]
    commands = {
        "autotune --help": [sys.executable, "-m", "autotune", "--help"],
        "autotune export --help": [sys.executable, "-m", "autotune", "export", "--help"],
    }
    print(f"{ROUNDS} rounds in alternation, medians of wall time over a bare click program")
    for name, command in commands.items():
        pairs = [(seconds(command), seconds(bare)) for _ in range(ROUNDS)]
        ratios = sorted(ours / theirs for ours, theirs in pairs)
        low, high = ratios[3], ratios[-4]  # sign-test interval of 15 values
        print(f"  {name:24s} {median(ratios):.2f}x  ({low:.2f} to {high:.2f})  goal: under 2x")
    ours, theirs = modules(commands["autotune --help"][1:]), modules(["-c", BARE, "--help"])
    extra = sorted(ours - theirs)
    print(f"  modules beyond the bare program: {len(extra)}: {', '.join(extra)}")
    megabytes, torch = parent_memory()
    print(f"  parent of a search: {megabytes} MiB resident at most, torch imported: {torch}")
    print("    goal: under 150 MiB, False")


def seconds(command: list[str]) -> float:
    """Return the wall seconds of one run."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def modules(arguments: list[str]) -> set[str]:
    """Return the names of the modules that a Python run imports."""
    run = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments], check=True, capture_output=True, text=True
    )
    lines = [line for line in run.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines[1:]}


def parent_memory() -> tuple[int, bool]:
    """Return the peak resident MiB of a real search's parent, and True if it imported torch."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "autotune", "init"],
            cwd=folder,
            check=True,
            stderr=subprocess.DEVNULL,
        )
        (Path(folder) / "space.yaml").write_text(SPACE)
        code = textwrap.dedent(PARENT).format(space="space.yaml")
        run = subprocess.run(
            [sys.executable, "-c", code], cwd=folder, check=True, capture_output=True, text=True
        )
    megabytes, torch = run.stdout.split()[-2:]
    return int(megabytes), torch == "True"


if __name__ == "__main__":
    main()
