"""Code may leave obstacles in a process, so that a fork is not as good as a fresh one."""

import json
import subprocess
import sys

import pytest

# A fork for each code, from a process that has imported what all need.
PROGRAM = """
import json, os, sys, tqdm
from autotune.training.before_fork import Traces
for number, code in enumerate(json.load(sys.stdin)):
    if os.fork() == 0:
        traces = Traces()
        exec(code, kept := {})
        print(traces.obstacle("it"), file=open(str(number), "w"), flush=True)
        os._exit(0)
    os.wait()
"""
OBSTACLES = [
    (
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "it left a thread running: ",
    ),
    (
        "import subprocess\nkept = subprocess.Popen(['sleep', '1'], stdout=subprocess.DEVNULL)",
        "it left a child process running: ",
    ),
    ("kept = open('data', 'w')", "it left a file open, whose position forks would share: /"),
    ("import os\nkept = os.pipe()", "it left a file open, whose position forks would share: "),
    (
        "import socket\nkept = socket.socket()",
        "it left a file open, whose position forks would share: socket:",
    ),
    ("import mmap\nkept = mmap.mmap(-1, 4096)", "it made memory that forks would share: "),
    (
        "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)",
        "it changed what happens when a child process ends",
    ),
]
HARMLESS = [
    "import threading\none = threading.Thread(target=print)\none.start()\none.join()",
    "import subprocess\nsubprocess.run(['true'])",
    "with open('data', 'w') as file:\n    file.write('x')",
    # As numpy.memmap keeps it: nobody reads on from a position.
    f"import mmap\nfile = open({sys.executable!r}, 'rb')\n"
    "kept = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)\nfile.close()",
    "kept = open('/dev/urandom', 'rb')",
    "import tqdm\nclass Bar(tqdm.tqdm): ...\nlist(Bar(range(3)))",
    "kept = bytearray(1 << 20)",
]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The reason against forks of a process in which some code was run."""
    codes = [*(code for code, _ in OBSTACLES), *HARMLESS]
    folder = tmp_path_factory.mktemp("codes")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=folder,
        input=json.dumps(codes),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {key: (folder / str(number)).read_text().strip() for number, key in enumerate(codes)}


@pytest.mark.parametrize(("code", "reason"), OBSTACLES)
def test_a_resource_that_forks_would_share_or_lack_is_an_obstacle(code, reason, found):
    assert found[code].startswith(reason)


@pytest.mark.parametrize("code", HARMLESS)
def test_a_resource_that_forks_copy_is_no_obstacle(code, found):
    assert found[code] == "None"
