"""The steps of each part of the kit, in order; see kit.py."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from steps import Step

SECONDS = {"part1": 540.0, "part2": 480.0, "rest": 540.0}
"""Timeout of each part in seconds."""
HERE = "{repo}/benchmarks/gpu"
WORKLOADS = "workloads"  # a link in the scratch folder, so that no output has absolute paths
ANSWERS = r"^(?:Keep your settings|[0-9.]+x faster|autotune: |not searched).*"
TESTED = r"\d+ (?:passed|failed|skipped|deselected|error).* in [0-9.]+s"
# Tests on which results on a GPU depend most.
FIRST_TESTS = "compile or graphs or limit or retries or float16 or copies or stages"


def part1(device: str, smoke: bool) -> list[Step]:
    """Return ResNet-18 at 32 pixels against its defaults and a rival, and the main tests."""
    rival = "{out}/resnet18-rival.json"
    return [
        Step("nvidia-smi", ["nvidia-smi", "-q"], 20, only="cuda", says=r"Driver Version.*"),
        Step("doctor", autotune("doctor", "--device", device), 60, says=r"^torch\.compile .*"),
        search("resnet18", "resnet18_32px.py", ["--device", device], 240, smoke),
        Step(
            "rival",
            python("rival.py", f"{WORKLOADS}/resnet18_32px.py", "--device", device,
                   "--budget", "10" if smoke else "95", "--out", rival),
            110,
        ),
        judge("resnet18", "resnet18_32px.py", device, 150, smoke, "--rival", rival),
        tests("tests that matter", ["-k", FIRST_TESTS], 150, smoke),
    ]  # fmt: skip


def part2(device: str, smoke: bool) -> list[Step]:
    """Return the search of an unmodified training script, and the probes."""
    flags = [
        "--allow", "numerics", "--map", "batch_size=--batch-size",
        "--metric-regex", "val loss ([0-9.]+)", "--metric-mode", "min",
    ]  # fmt: skip
    script = search("transformer", "train_transformer.py", flags, 200, smoke)
    probes = python(
        "probes.py", "--device", device, "--out", "{out}/probes.jsonl", "--seconds", "{seconds}"
    )
    return [
        with_arguments(script, ["--", "--device", device]),
        judge("transformer", "transformer.py", device, 120, smoke),
        Step("probes", [*probes, *(["--short"] if smoke else [])], 150, says=r"^verdicts: .*"),
    ]


def rest(device: str, smoke: bool) -> list[Step]:
    """Return ResNet-50 at 224 pixels, all GPU tests, a comparison with itself, and JPEG files."""
    same = ["{python}", "{repo}/benchmarks/same_settings.py", "1"]
    same += ["--rounds", "2" if smoke else "4", "--model", f"{WORKLOADS}/resnet18_32px.py"]
    jpegs = autotune("profile", f"{WORKLOADS}/jpeg_files.py", "--device", device)
    return [
        search("resnet50", "resnet50_224px.py", ["--device", device], 190, smoke),
        judge("resnet50", "resnet50_224px.py", device, 110, smoke),
        tests("tests", [], 200, smoke),
        Step("A/A", interpreted(same), 100, says=r"^\| 0 .*"),
        Step("JPEG profile", jpegs, 60, says=r"^(?:Your settings wait|Run it again).*"),
    ]


PARTS: dict[str, Callable[[str, bool], list[Step]]] = {
    "part1": part1,
    "part2": part2,
    "rest": rest,
}


def install(folder: Path) -> Step:
    """Return the step that installs carried wheels into the first folder of the import path."""
    pip = ["-m", "pip", "install", "--quiet", "--root-user-action=ignore"]
    pip += ["--no-index", "--no-deps", "--target"]
    wheels = sorted(map(str, folder.resolve().glob("*.whl")))
    return Step(
        "install",
        interpreted(["{python}", *pip, "{scratch}/site", *wheels]),
        90,
        needs=wheels[:1] or [str(folder / "*.whl")],
        missing=f"no wheels in {folder.name}: what is installed is taken",
    )


def search(name: str, model: str, flags: list[str], budget: int, smoke: bool) -> Step:
    """Return a search step with a time budget of `budget` seconds."""
    study = "{scratch}/studies/" + Path(model).stem
    size = ["--time-budget", f"{budget}s"]
    if smoke:
        size = ["--trials", "3", "--space", f"{HERE}/smoke_space.yaml", "--accuracy-samples", "64"]
    more = ["--out", f"{{out}}/{name}-best.yaml", "--progress", "plain", *flags]
    return Step(
        f"{name} search",
        autotune("search", f"{WORKLOADS}/{model}", *size, *more),
        budget + 50,
        says=ANSWERS,
        keep={f"{study}/results.jsonl": f"{name}-trials.jsonl"},
        tails=f"{study}/trials",
    )


def with_arguments(step: Step, arguments: list[str]) -> Step:
    """Return a step with more words at the end of its command."""
    return Step(**{**vars(step), "command": [*step.command, *arguments]})


def with_program(step: Step, program: Path) -> Step:
    """Return a step whose command runs a program in place of `python -m autotune`, if it has it."""
    python, *words = step.command
    if words[:2] != ["-m", "autotune"]:
        return step
    return Step(**{**vars(step), "command": [python, str(program), *words[2:]]})


def judge(name: str, model: str, device: str, seconds: int, smoke: bool, *more: str) -> Step:
    """Return a step that runs the judge on a search's best.yaml."""
    best = f"{{out}}/{name}-best.yaml"
    size = ["--cycles", "2", "--block", "0.3"] if smoke else []
    command = python(
        "judge.py", f"{WORKLOADS}/{model}", best, "--device", device, "--seconds", "{seconds}",
        "--out", f"{{out}}/{name}-judge.json", *size, *more,
    )  # fmt: skip
    return Step(f"{name} judge", command, seconds, needs=[best], says=r"^answer/default .*")


def tests(name: str, chosen: list[str], seconds: int, smoke: bool) -> Step:
    """Return a step with GPU tests; in a smoke run, with two that need no GPU."""
    chosen = ["-k", "machine or accelerator"] if smoke else ["-m", "gpu", "-n", "8", *chosen]
    options = ["-v", "--tb=short", "-p", "no:cacheprovider", "--basetemp={scratch}/pytest"]
    options += ["-p", "no:benchmark"]  # a plugin that warns of parallel tests, where installed
    command = ["{python}", "-m", "pytest", "tests/gpu", *options, *chosen]
    return Step(name, interpreted(command), seconds, says=TESTED, folder="{repo}")


def autotune(*words: str) -> list[str]:
    """Return a command of autotune's command line."""
    return interpreted(["{python}", "-m", "autotune", *words])


def python(program: str, *words: str) -> list[str]:
    """Return the command that runs a program of this folder."""
    return interpreted(["{python}", f"{HERE}/{program}", *words])


def interpreted(words: list[str]) -> list[str]:
    """Return a command with this interpreter in the place of {python}."""
    return [sys.executable if word == "{python}" else word for word in words]
