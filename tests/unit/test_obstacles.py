"""Code may leave obstacles in a process, so that a fork is not as good as a fresh one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys, tqdm
from autotune.training.before_fork import Traces
traces = Traces()
with traces.watching():
    exec(sys.argv[1], kept := {{"__name__": {module!r}}})
print(traces.obstacle("it"))
"""


def obstacle_after(code: str, folder: Path, module: str = "model") -> str:
    """The reason against forks of a process in which a module with this code was run."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(module=module), code],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (
            "import threading, time\n"
            "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
            "it left a thread running: ",
        ),
        (
            "import subprocess\nkept = subprocess.Popen(['sleep', '3'], stdout=subprocess.DEVNULL)",
            "it left a child process running: ",
        ),
        ("kept = open('data', 'w')", "it left a file open, whose position forks would share: /"),
        ("import os\nkept = os.pipe()", "it left a file open, whose position forks would share: "),
        (
            "import socket\nkept = socket.socket()",
            "it left a file open, whose position forks would share: socket:",
        ),
        ("import mmap\nkept = mmap.mmap(-1, 4096)", "it made memory that forks would share: "),
        ("import os\nos.register_at_fork(before=print)", "it registered a fork hook in model"),
        (
            "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)",
            "it changed what happens when a child process ends",
        ),
    ],
)
def test_a_resource_that_forks_would_share_or_lack_is_an_obstacle(
    code: str, reason: str, tmp_path: Path
) -> None:
    assert obstacle_after(code, tmp_path).startswith(reason)


@pytest.mark.parametrize(
    "code",
    [
        "import threading\none = threading.Thread(target=print)\none.start()\none.join()",
        "import subprocess\nsubprocess.run(['true'])",
        "with open('data', 'w') as file:\n    file.write('x')",
        # As numpy.memmap keeps it: nobody reads on from a position.
        "import mmap\nfile = open('/proc/self/exe', 'rb')\n"
        "kept = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)\nfile.close()",
        "kept = open('/dev/urandom', 'rb')",
        "import tqdm\nclass Bar(tqdm.tqdm): ...\nlist(Bar(range(3)))",
        "kept = bytearray(1 << 20)",
    ],
)
def test_a_resource_that_forks_copy_is_no_obstacle(code: str, tmp_path: Path) -> None:
    if "/proc/self/exe" in code:
        code = code.replace("/proc/self/exe", sys.executable)
    assert obstacle_after(code, tmp_path) == "None"


def test_fork_hooks_of_libraries_that_are_made_for_forks_are_none(tmp_path: Path) -> None:
    hook = "import os\nos.register_at_fork(before=lambda: None)"
    assert obstacle_after(hook, tmp_path, module="logging.handlers") == "None"
    assert obstacle_after(hook, tmp_path, module="torch.anything") == "None"
