"""The steps of each part of the kit, in order; see kit.py."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from steps import Step

SECONDS = {"part1": 400.0, "part2": 390.0, "rest": 540.0, "bert": 540.0}
"""Timeout of each part in seconds; on an H200 the steps of the first two took 275 each."""
HERE = "{repo}/benchmarks/gpu"
WORKLOADS = "workloads"  # a link in the scratch folder, so that no output has absolute paths
ANSWERS = r"^(?:Keep your settings|[0-9.]+x faster|autotune: |not searched).*"
TESTED = r"\d+ (?:passed|failed|skipped|deselected|error|tests collected).* in [0-9.]+s"


def part1(device: str, smoke: bool) -> list[Step]:
    """Return the GPU tests, and the search of an unmodified training script with its judge."""
    flags = [
        "--map", "batch_size=--batch-size",
        "--metric-regex", "val loss ([0-9.]+)", "--metric-mode", "min",
    ]  # fmt: skip
    script = search("transformer", "train_transformer.py", flags, 110, smoke)
    return [
        Step("nvidia-smi", ["nvidia-smi", "-q"], 20, only="cuda", says=r"Driver Version.*"),
        tests(150, smoke),
        with_arguments(script, ["--", "--device", device]),
        judge("transformer", "transformer.py", device, 70, smoke),
    ]


def part2(device: str, smoke: bool) -> list[Step]:
    """Return ResNet-18 at 32 pixels against its defaults, and the probes."""
    probes = python(
        "probes.py", "--device", device, "--out", "{out}/probes.jsonl", "--seconds", "{seconds}"
    )
    return [
        search("resnet18", "resnet18_32px.py", ["--device", device], 140, smoke),
        judge("resnet18", "resnet18_32px.py", device, 70, smoke),
        Step("probes", [*probes, *(["--short"] if smoke else [])], 150, says=r"^verdicts: .*"),
    ]


def rest(device: str, smoke: bool) -> list[Step]:
    """Return ResNet-50 at 224 pixels against a rival, settings against themselves, JPEG files."""
    same = ["{python}", "{repo}/benchmarks/same_settings.py", "1"]
    same += ["--rounds", "2" if smoke else "4", "--model", f"{WORKLOADS}/resnet18_32px.py"]
    jpegs = autotune("profile", f"{WORKLOADS}/jpeg_files.py", "--device", device)
    rival = "{out}/resnet50-rival.json"
    return [
        search("resnet50", "resnet50_224px.py", ["--device", device], 150, smoke),
        Step(
            "rival",
            python("rival.py", f"{WORKLOADS}/resnet50_224px.py", "--device", device,
                   "--budget", "10" if smoke else "95", "--out", rival),
            110,
        ),
        judge("resnet50", "resnet50_224px.py", device, 110, smoke, "--rival", rival),
        Step("A/A", interpreted(same), 100, says=r"^\| 0 .*"),
        Step("JPEG profile", jpegs, 60, says=r"^(?: +\d+ %  |no findings).*"),
    ]  # fmt: skip


def bert(device: str, smoke: bool) -> list[Step]:
    """Return BERT-base's shape at 384 tokens, and the same where memory bounds the batch."""
    bounded = ["--device", device, "--memory-limit", "2GB" if smoke else "16GB"]
    return [
        search("bert", "bert_384.py", ["--device", device], 170, smoke),
        judge("bert", "bert_384.py", device, 100, smoke),
        search("bounded", "bert_384.py", bounded, 120, smoke),
    ]


PARTS: dict[str, Callable[[str, bool], list[Step]]] = {
    "part1": part1,
    "part2": part2,
    "rest": rest,
    "bert": bert,
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
    study = f"{{scratch}}/studies/{name}"
    size = ["--time-budget", f"{budget}s"]
    if smoke:
        size = ["--trials", "3", "--space", f"{HERE}/smoke_space.yaml", "--accuracy-samples", "64"]
    more = ["--study", name, "--out", f"{{out}}/{name}-best.yaml", "--progress", "plain", *flags]
    return Step(
        f"{name} search",
        autotune("search", f"{WORKLOADS}/{model}", *size, *more),
        budget + 50,
        says=ANSWERS,
        keep={f"{study}/study.db": f"{name}-study.db"},
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


def tests(seconds: int, smoke: bool) -> Step:
    """Return a step with the GPU tests, which a smoke run only collects."""
    chosen = ["-m", "gpu", *(["--collect-only", "-q"] if smoke else ["-n", "8"])]
    options = ["-v", "--tb=short", "-p", "no:cacheprovider", "--basetemp={scratch}/pytest"]
    options += ["-p", "no:benchmark"]  # a plugin that warns of parallel tests, where installed
    command = ["{python}", "-m", "pytest", "tests/gpu", *options, *chosen]
    return Step("tests", interpreted(command), seconds, says=TESTED, folder="{repo}")


def autotune(*words: str) -> list[str]:
    """Return a command of autotune's command line."""
    return interpreted(["{python}", "-m", "autotune", *words])


def python(program: str, *words: str) -> list[str]:
    """Return the command that runs a program of this folder."""
    return interpreted(["{python}", f"{HERE}/{program}", *words])


def interpreted(words: list[str]) -> list[str]:
    """Return a command with this interpreter in the place of {python}."""
    return [sys.executable if word == "{python}" else word for word in words]
