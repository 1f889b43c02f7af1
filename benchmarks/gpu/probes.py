"""Check autotune's assumptions about a GPU: a row for each suspected fault.

    python benchmarks/gpu/probes.py [--device cuda] [--rows C1,C4] [--out probes.jsonl]

Each row is a process with a timeout. torch is imported once, before they are forked; a process that
forks never touches the device. Rows that time nothing run in parallel, the others alone. A row has
what was expected, what was seen, and a verdict: as expected, different, not here, failed, or no
time. `--short` makes each as small as possible. The rows are in probe_rows.py.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch  # noqa: F401 - imported once, for all forks
from probe_rows import ROWS, Place, Row

FORK = get_context("fork")


@dataclass(frozen=True)
class Running:
    """A row with its live process."""

    row: Row
    process: Any
    reply: Connection
    start: float


def main() -> None:
    """Run the rows, write a line of JSON for each as it ends, and print them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--rows", default=",".join(row.name for row in ROWS))
    parser.add_argument("--out", type=Path, default=Path("probes.jsonl"))
    parser.add_argument("--seconds", type=float, default=600.0, help="total seconds")
    parser.add_argument("--short", action="store_true")
    arguments = parser.parse_args()
    wanted = arguments.rows.split(",")
    if unknown := set(wanted) - {row.name for row in ROWS}:
        parser.error(f"--rows: unknown {', '.join(sorted(unknown))}")
    end = time.monotonic() + arguments.seconds
    rows = [row for row in ROWS if row.name in wanted]
    place = Place(arguments.device, arguments.short)
    verdicts = Counter[str]()

    def told(found: dict[str, Any]) -> None:
        verdicts[found["verdict"]] += 1
        with arguments.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found) + "\n")
        print("\n".join(f"{name:9} {value}" for name, value in found.items()), end="\n\n")

    together([row for row in rows if not row.alone], place, end, told)
    for row in rows:
        if row.alone:
            together([row], place, end, told)
    print("verdicts:", ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items()))


def together(
    rows: Sequence[Row], place: Place, end: float, told: Callable[[dict[str, Any]], None]
) -> None:
    """Run rows in parallel, until `end` at most, and pass the result of each to `told`."""
    running = [started(row, place) for row in rows if time.monotonic() < end]
    for row in rows[len(running) :]:
        told({"row": row.name, "expected": row.expected, "verdict": "no time", "seen": ""})
    for one in running:
        until = min(end, one.start + one.row.seconds)
        found: dict[str, Any] = {
            "verdict": "failed",
            "seen": f"cut after {until - one.start:.0f} s",
        }
        if one.reply.poll(max(0.0, until - time.monotonic())):
            try:
                found = one.reply.recv()
            except EOFError:
                one.process.join()
                found = {"verdict": "failed", "seen": f"ended with {one.process.exitcode}"}
        kill(one)
        told({"row": one.row.name, "expected": one.row.expected, **found})


def started(row: Row, place: Place) -> Running:
    """Start a row in a process of its own."""
    receiving, sending = FORK.Pipe(duplex=False)
    process = FORK.Process(target=carried_out, args=(row, place, sending))
    process.start()
    sending.close()
    return Running(row, process, receiving, time.monotonic())


def carried_out(row: Row, place: Place, reply: Connection) -> None:
    """Run a row in its process, which leads a group, so that its children can be killed too."""
    os.setpgid(0, 0)
    sys.stdout.flush()
    os.dup2(2, 1)
    if row.needs_cuda and place.device != "cuda":
        reply.send({"verdict": "not here", "seen": "needs CUDA"})
        return
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="probe-") as folder:
        try:
            seen, holds = row.look(place, Path(folder))
            verdict = {True: "as expected", False: "different", None: "not here"}[holds]
        except Exception as error:  # a failed probe is a result
            traceback.print_exc()
            verdict, seen = "failed", f"{type(error).__name__}: {error}"[:500]
        seconds = round(time.monotonic() - start, 1)
        reply.send({"verdict": verdict, "seen": seen, "seconds": seconds})


def kill(one: Running) -> None:
    """Give a process a second to tidy up, then kill its group."""
    one.process.join(1)
    with suppress(ProcessLookupError):
        os.killpg(one.process.pid, signal.SIGKILL)
    one.process.kill()  # its group may not exist yet
    one.process.join()
    one.reply.close()


if __name__ == "__main__":
    main()
