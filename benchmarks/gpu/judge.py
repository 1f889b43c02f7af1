"""Check the speed-up in best.yaml with independent code, in plain torch without autotune.

    python judge.py MODEL.py best.yaml [--rival rival.json] [--seconds 170] [--out judge.json]

The settings in best.yaml are applied by hand (judge_side.py) to the functions of MODEL.py:
`build_model`, `build_dataset`, `compute_loss`, and if present `build_optimizer` and `collate_fn`.
For a training script, MODEL.py is a file beside it that gives its parts those names
(workloads/transformer.py for train_transformer.py).

Each side is a live process of its own:

- default: the baseline in the file
- tf32: the same with TF32, on CUDA
- answer: the best settings
- rival: the settings that a rival picked
- again: the baseline once more

They take turns by blocks of `--block` seconds. The order is a Latin square in which each side
follows each other one equally often (E. J. Williams, Australian Journal of Scientific Research A 2,
1949). While one side runs, the others are blocked in a read, with full loader queues. Half way, all
processes are ended and started anew.

The result is JSON: ratios of throughputs within a cycle, as the mean of their logarithms with
Student's 95 % interval (NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.5.2). The ratio of
each half is printed too, since processes differ and two starts are few. The interval of
`again/default` should contain 1.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import yaml

# 0.975 quantiles of Student's t distribution for 1, 2 ... 30 degrees of freedom (NIST 1.3.6.7.2).
T_975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
T_975_OF_MANY = 1.96
PAIRS = (
    ("answer", "default"), ("answer", "tf32"), ("answer", "rival"), ("rival", "default"),
    ("tf32", "default"), ("again", "default"),
)  # fmt: skip
Settings = dict[str, Any]


class SideError(Exception):
    """A side cannot go on; the message ends with its last output."""


class Process:
    """The live process of a side."""

    def __init__(self, model: Path, device: str, settings: Settings) -> None:
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
        own = {name: value for name, value in settings.items() if name.startswith("env.") and value}
        environ = os.environ | {name.removeprefix("env."): value for name, value in own.items()}
        program = Path(__file__).with_name("judge_side.py")
        self.child = subprocess.Popen(
            [sys.executable, str(program), str(model.resolve()), device, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=environ,
        )

    def ask(self, deadline: float, **command: float) -> dict[str, Any]:
        """Send a command, if there is one, and wait for the reply.

        Raises:
            SideError: the process ended, or did not answer until the deadline.
        """
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        try:
            if command:
                self.child.stdin.write(json.dumps(command).encode() + b"\n")
                self.child.stdin.flush()
            patience = max(0.0, deadline - time.monotonic())
            if not select.select([self.child.stdout], [], [], patience)[0]:
                raise SideError(f"no answer within {patience:.0f} s")
            line = self.child.stdout.readline()
        except OSError:
            line = b""
        if not line:
            raise SideError(f"ended: {self.last_words()}")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def last_words(self) -> str:
        """Return the end of the process's stderr."""
        self.errors.seek(0)
        return self.errors.read()[-1500:].decode(errors="replace").strip()

    def end(self) -> None:
        """Kill the process; the workers of its loader then end by themselves."""
        self.child.kill()
        self.child.wait()
        for pipe in (self.child.stdin, self.child.stdout, self.errors):
            if pipe is not None:
                pipe.close()


class Judge:
    """The comparison of all sides, and its result."""

    def __init__(self, arguments: argparse.Namespace, sides: Mapping[str, Settings]) -> None:
        self.arguments, self.sides = arguments, sides
        self.start = time.monotonic()
        self.result: dict[str, Any] = {
            "model": arguments.model.name,
            "sides": {name: {"settings": own, "starts": []} for name, own in sides.items()},
            "cycles": [],
            "ratios": {},
        }

    def run(self) -> None:
        """Run both halves; the first gets 60 % of the time, because it compiles."""
        for half, share in ((0, 0.6), (1, 1.0)):
            self.half(half, self.start + self.arguments.seconds * share)

    def half(self, half: int, end: float) -> None:
        """Start all sides, warm each up alone, and go through cycles until the time is up."""
        live: dict[str, Process] = {}
        try:
            for name in self.alive():
                live[name] = Process(self.arguments.model, self.arguments.device, self.sides[name])
            for command in ({}, {"most": self.arguments.seconds / 4}):
                for name in list(live):
                    self.guarded(live, name, command)
            longest, left = 0.0, self.arguments.cycles
            while live and left and time.monotonic() + longest < end:
                began, left = time.monotonic(), left - 1
                self.cycle(half, live)
                longest = max(longest, time.monotonic() - began)
        finally:
            for process in live.values():
                process.end()

    def alive(self) -> list[str]:
        """Return the names of the sides that have not failed."""
        return [name for name in self.sides if "failed" not in self.result["sides"][name]]

    def guarded(
        self, live: dict[str, Process], name: str, command: Mapping[str, float]
    ) -> dict[str, Any] | None:
        """Send a command to a side and return its reply.

        A side that fails is dropped, with the reason noted; the reply is then None.
        """
        own = self.result["sides"][name]
        try:
            reply = live[name].ask(self.start + self.arguments.seconds, **command)
        except SideError as error:
            own["failed"] = str(error)
            live.pop(name).end()
            return None
        if "samples" not in reply:
            own["starts"].append(reply)
        return reply

    def cycle(self, half: int, live: dict[str, Process]) -> None:
        """Run one block of each side, in the order of the next row of the square."""
        names = list(live)
        rows = square(len(names))
        row = rows[len(self.result["cycles"]) % len(rows)]
        blocks = {}
        for place in row:
            name = names[place]
            reply = self.guarded(live, name, {"seconds": self.arguments.block})
            if reply is not None:
                blocks[name] = reply
        self.result["cycles"].append({"half": half, "blocks": blocks})
        self.result["ratios"] = ratios(self.result["cycles"])
        for name in names:
            rates = [rate(c["blocks"][name]) for c in self.result["cycles"] if name in c["blocks"]]
            if rates:
                self.result["sides"][name]["samples_per_second"] = round(median(rates), 2)
        self.write()

    def write(self) -> None:
        """Write the result so far, atomically."""
        out: Path = self.arguments.out
        self.result["seconds"] = round(time.monotonic() - self.start, 1)
        beside = out.with_name(f"{out.name}.part")
        beside.write_text(json.dumps(self.result, indent=1) + "\n", encoding="utf-8")
        beside.replace(out)


def square(sides: int) -> list[list[int]]:
    """Return the rows of Williams's Latin square; odd sizes have a second, reversed square."""
    first = [(n + 1) // 2 if n % 2 else (sides - n // 2) % sides for n in range(sides)]
    rows = [[(place + shift) % sides for place in first] for shift in range(sides)]
    return rows + ([row[::-1] for row in rows] if sides % 2 else [])


def rate(block: Mapping[str, float]) -> float:
    """Return the samples per second of a block."""
    return block["samples"] / block["seconds"]


def ratios(cycles: list[dict[str, Any]]) -> dict[str, Any]:
    """Return each pair's ratio of throughputs, with its interval, and the ratio of each half."""
    found = {}
    for one, other in PAIRS:
        both = [c for c in cycles if one in c["blocks"] and other in c["blocks"]]
        logs = [math.log(rate(c["blocks"][one]) / rate(c["blocks"][other])) for c in both]
        if logs:
            halves = [
                [x for x, c in zip(logs, both, strict=True) if c["half"] == h] for h in (0, 1)
            ]
            found[f"{one}/{other}"] = {
                **interval(logs),
                "halves": [round(math.exp(fmean(half)), 4) if half else None for half in halves],
            }
    return found


def interval(logs: list[float]) -> dict[str, Any]:
    """Return a mean of logarithms as a ratio, with Student's interval; None for a single one."""
    middle, count = fmean(logs), len(logs)
    found: dict[str, Any] = {"ratio": round(math.exp(middle), 4), "ci95": None, "cycles": count}
    if count > 1:
        t = T_975[count - 2] if count - 2 < len(T_975) else T_975_OF_MANY
        half = t * stdev(logs) / math.sqrt(count)
        found["ci95"] = [round(math.exp(middle + sign * half), 4) for sign in (-1, 1)]
    return found


def sides_of(
    best: dict[str, Any], rival: dict[str, Any] | None, device: str
) -> dict[str, Settings]:
    """Return each side's settings; without a baseline in the file, batch size 32 is the default."""
    evidence = best.get("evidence") or {}
    own = (evidence.get("baseline") or {}).get("config") or {"batch_size": 32}
    sides = {"default": own, "answer": best["config"], "again": own}
    if device.startswith("cuda"):
        sides["tf32"] = {**own, "float32_matmul_precision": "high"}
    if rival is not None and rival.get("settings") is not None:
        sides["rival"] = {**own, **rival["settings"]}
    return sides


def lines(result: dict[str, Any]) -> list[str]:
    """Return the result as lines for a person."""
    said = [
        f"{name:8} {own.get('samples_per_second', own.get('failed', 'did not run'))}"
        for name, own in result["sides"].items()
    ]
    for pair, found in result["ratios"].items():
        low, high = found["ci95"] or (math.nan, math.nan)
        said.append(
            f"{pair:16} {found['ratio']:.3f} ({low:.3f} to {high:.3f}, {found['cycles']} cycles)"
        )
    if claim := result.get("claimed"):
        said.append(f"claimed          {claim['ratio']:.3f}; the judge found {claim['off']:+.1%}")
    return said


def main() -> None:
    """Compare, print the ratios, and exit with 1 if the answer or the default did not run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("best", type=Path)
    parser.add_argument("--rival", type=Path, help="output of rival.py")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=170.0, help="total seconds")
    parser.add_argument("--block", type=float, default=2.0, help="seconds of a turn")
    parser.add_argument("--cycles", type=int, default=1000, help="most cycles in each half")
    parser.add_argument("--out", type=Path, default=Path("judge.json"))
    arguments = parser.parse_args()
    best = yaml.safe_load(arguments.best.read_text(encoding="utf-8"))
    told = arguments.rival and arguments.rival.is_file()
    rival = json.loads(arguments.rival.read_text(encoding="utf-8")) if told else None
    judge = Judge(arguments, sides_of(best, rival, arguments.device))
    judge.run()
    claimed = (best.get("evidence") or {}).get("speedup")
    if claimed and (found := judge.result["ratios"].get("answer/default")):
        judge.result["claimed"] = {
            **claimed,
            "off": round(found["ratio"] / claimed["ratio"] - 1, 4),
        }
    if best.get("unconfirmed"):
        judge.result["unconfirmed"] = True
    judge.write()
    print("\n".join(lines(judge.result)))
    sys.exit(0 if "answer/default" in judge.result["ratios"] else 1)


if __name__ == "__main__":
    main()
