"""Steps of the kit: each is a group of processes with a timeout, whose result is written."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

MARK = "KIT_STEP"
LOG = "log.txt"
LARGEST_FILE = 16 << 20
LARGEST_LOG = 1 << 20  # of one step, in bytes
GRACE_SECONDS = 5.0
LEAST_SECONDS = 3.0  # a step is skipped if fewer seconds are left


@dataclass(frozen=True)
class Step:
    """A command with its timeout, its needs and its outputs.

    `{seconds}` in a command is the time that the step may take, less a tenth; `{out}`, `{scratch}`
    and `{repo}` are folders.
    """

    name: str
    command: Sequence[str]
    seconds: float
    """Timeout in seconds; the remaining time of the part caps it."""
    needs: Sequence[str] = ()
    """Files without which the step is skipped."""
    missing: str = "no answer"
    """Text for a step that is skipped because of a missing file."""
    says: str = r"\S.*"
    """Regular expression for the result: its last match in the output, else the last line."""
    keep: Mapping[str, str] = field(default_factory=dict)
    """Files that are copied afterwards, however the step ended, and their new names."""
    tails: str = ""
    """A folder; the end of each stderr.log in it goes into the log."""
    only: str = ""
    """Kind of device that the step needs; empty for any."""
    folder: str = "{scratch}"
    """Working directory of the command."""


@dataclass(frozen=True)
class Done:
    """Result of a step."""

    name: str
    result: str
    """ok, exit N, cut, skipped or no start."""
    seconds: float
    says: str
    """Text from the output, or the reason why the step was skipped."""
    command: str

    @property
    def line(self) -> str:
        """The step's row in the summary."""
        return f"{self.name:18} {self.result:8} {self.seconds:6.1f} s  {self.says[:110]}".rstrip()


@dataclass
class Kit:
    """Runs steps one after the other inside one budget of seconds."""

    out: Path
    scratch: Path
    repo: Path
    device: str
    environ: Mapping[str, str]
    deadline: float
    """End of the budget in seconds of `time.monotonic`."""

    def run(self, step: Step) -> Done:
        """Run a step or skip it; failures of the step are results, not exceptions."""
        start = time.monotonic()
        left = min(step.seconds, self.deadline - start)
        command = [self.filled(word, left) for word in step.command]
        lacking = [name for name in step.needs if not Path(self.filled(name, left)).exists()]
        if step.only and step.only != self.device:
            result, says = "skipped", f"needs {step.only}"
        elif lacking:
            result, says = "skipped", step.missing
        elif left < LEAST_SECONDS:
            result, says = "skipped", "no time left"
        else:
            result, says = self.started(step, command, left)
        done = Done(step.name, result, time.monotonic() - start, says, self.shown(command))
        with (self.out / "steps.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(vars(done)) + "\n")
        return done

    def started(self, step: Step, command: list[str], seconds: float) -> tuple[str, str]:
        """Run the command with its output in the log, then tidy up after it."""
        log = self.out / LOG
        with log.open("ab") as file:
            file.write(f"\n===== {step.name}: {self.shown(command)}\n".encode())
            begin = file.tell()
        result = self.waited_for(step, command, seconds)
        output = log.read_bytes()[begin:]
        if len(output) > LARGEST_LOG:
            half = LARGEST_LOG // 2
            output = output[:half] + b"\n... cut out ...\n" + output[-half:]
            os.truncate(log, begin)
            with log.open("ab") as file:
                file.write(output)
        with log.open("a", encoding="utf-8") as text:
            if result == "cut":
                text.write(f"cut after {seconds:.0f} s\n")
            if step.tails:
                text.writelines(tails(Path(self.filled(step.tails, 0))))
        for source, name in step.keep.items():
            copy_whole(Path(self.filled(source, 0)), self.out / name)
        said = output.decode(errors="replace")
        found = re.findall(step.says, said, re.MULTILINE) or re.findall(r"\S.*", said)
        return result, found[-1].strip() if found else ""

    def waited_for(self, step: Step, command: list[str], seconds: float) -> str:
        """Run the command in a session of its own, all of whose processes are ended afterwards."""
        mark = f"{MARK}={secrets.token_hex(8)}"
        name, _, token = mark.partition("=")
        with (self.out / LOG).open("ab") as log:
            try:
                child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self.filled(step.folder, 0),
                    env={**self.environ, name: token},
                    start_new_session=True,
                )
            except OSError as error:
                log.write(f"{error}\n".encode())
                return "no start"
            try:
                code = child.wait(seconds)
                return "ok" if code == 0 else f"exit {code}"
            except subprocess.TimeoutExpired:
                return "cut"
            finally:
                end(child, mark.encode())

    def filled(self, word: str, seconds: float) -> str:
        """Return a word of a command with its placeholders filled."""
        words = {"out": self.out, "scratch": self.scratch, "repo": self.repo}
        for name, value in {**words, "seconds": int(seconds * 0.9)}.items():
            word = word.replace(f"{{{name}}}", str(value))
        return word

    def shown(self, command: Sequence[str]) -> str:
        """Return a command as text, without absolute paths of the kit's folders."""
        text = " ".join(["python", *command[1:]] if "python" in command[0] else command)
        for folder in (self.repo, self.out, self.scratch):
            text = text.replace(f"{folder}/", "")
        return text


def end(child: subprocess.Popen[bytes], mark: bytes) -> None:
    """End a step's processes: its group, and all others that were started with its mark."""
    if child.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    for _ in range(20):
        left = list(marked(mark))
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not left:
            break
        time.sleep(0.1)


def marked(mark: bytes) -> Iterator[int]:
    """Yield the ids of processes that have this entry in their initial environment."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name)


def tails(folder: Path, lines: int = 30, most: int = 40) -> Iterator[str]:
    """Yield the last lines of each trial's stderr.log that is not empty."""
    for path in sorted(folder.rglob("stderr.log"))[-most:]:
        text = path.read_text(encoding="utf-8", errors="replace").splitlines()
        if text:
            end_of_it = "\n".join(text[-lines:])
            yield f"--- {path.parent.relative_to(folder)}\n{end_of_it[-4000:]}\n"


def copy_whole(source: Path, target: Path) -> None:
    """Copy a file; of one that is too large, only as many whole lines as fit."""
    if not source.is_file():
        return
    if source.stat().st_size <= LARGEST_FILE:
        shutil.copyfile(source, target)
        return
    with source.open("rb") as file:
        data = file.read(LARGEST_FILE)
    target.write_bytes(data[: data.rfind(b"\n") + 1])
