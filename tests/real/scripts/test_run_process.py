"""The process of `autotune run` is the script's: arguments, input, signals, exit code, workers."""

import json
import shutil
import signal
import subprocess
import sys

import pytest

from children import completed
from tiers import late
from tuned_scripts import SCRIPTS, best, report_of, run

pytestmark = pytest.mark.fresh
ODD = ["--help", "--", "a b", "'\"", "$(echo no)", "two\nlines", "", "-m", "--strict"]


@pytest.mark.parametrize("name", [late("plain name.py"), 'it\'s "odd" $(x)\n.py'])
def test_arguments_input_and_folder_reach_the_script_as_they_are(tmp_path, name):
    script = tmp_path / "sub" / name
    script.parent.mkdir()
    shutil.copy(SCRIPTS / "leaves.py", script)
    words = ["run", str(best(tmp_path)), f"sub/{name}", *ODD, "--read"]
    done = completed(tmp_path, [sys.executable, "-m", "autotune", *words], stdin="in\nput")
    called, read = map(json.loads, done.stdout.splitlines())
    assert called == {
        "argv": [*ODD, "--read"],
        "cwd": str(tmp_path),
        "file": str(script),
        "name": "__main__",
    }
    assert read == "in\nput"
    assert report_of(done) == ["nothing was applied: the script did not import torch"]


def test_a_module_runs_as_python_m_would_run_it(tmp_path):
    package = tmp_path / "trainer"
    package.mkdir()
    (package / "__init__.py").touch()
    shutil.copy(SCRIPTS / "leaves.py", package / "__main__.py")
    done = run(tmp_path, "-m", "trainer", *ODD)
    called = json.loads(done.stdout.splitlines()[0])
    assert called["argv"] == ODD
    assert called["file"] == str(package / "__main__.py")
    shutil.copy(SCRIPTS / "leaves.py", package / "fit.py")
    inner = json.loads(run(tmp_path, "-m", "trainer.fit", *ODD).stdout.splitlines()[0])
    assert (inner["argv"], inner["file"]) == (ODD, str(package / "fit.py"))
    missing = run(tmp_path, "-m", "nothing.here")
    assert missing.returncode == 2
    assert "nothing.here: there is no module nothing in this directory" in missing.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--exit", "7"), 7),
        late(("--raise",), 1),
        (("--kill", "SIGTERM"), -signal.SIGTERM),
        late(("--kill", "SIGINT"), -signal.SIGINT),
    ],
)
def test_the_process_ends_as_the_script_does(tmp_path, arguments, code):
    done = run(tmp_path, SCRIPTS / "leaves.py", *arguments)
    assert done.returncode == code, done.stderr


def test_a_signal_reaches_the_script_itself(tmp_path):
    words = ["run", str(best(tmp_path)), str(SCRIPTS / "leaves.py"), "--wait"]
    with subprocess.Popen(
        [sys.executable, "-m", "autotune", *words], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        while process.stdout.readline() != "waiting\n":
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 3


def test_processes_of_the_scripts_own_say_nothing_of_ours(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import os, subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', 'print(1)'])\n"
        "if (child := os.fork()):\n"
        "    os.waitpid(child, 0)\n"
        "sys.stdout.buffer.write(b'\\xff\\x00\\x1b[2J\\n')\n"
    )
    path = best(tmp_path)
    words = [sys.executable, "-m", "autotune", "run", path, script]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, check=False)
    assert done.stdout == b"1\n" + b"\xff\x00\x1b[2J\n" * 2, "to the byte"
    assert done.stderr.count(b"autotune: nothing was applied") == 1


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_import_nothing_of_ours(tmp_path, start):
    script = SCRIPTS / "says_what_workers_import.py"
    done = run(tmp_path, script, start, num_workers=2)
    assert done.stdout == "2 []\n", done.stderr


def test_print_command_is_a_line_for_a_shell_that_does_the_same(tmp_path):
    settings = {"env.OMP_WAIT_POLICY": "passive"}
    script = SCRIPTS / "leaves.py"
    shown = run(tmp_path, "--allow-numerics", "--print-command", script, *ODD, **settings)
    assert shown.stdout.startswith("env OMP_WAIT_POLICY=passive ")
    done = subprocess.run(
        shown.stdout, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert json.loads(done.stdout.splitlines()[0])["argv"] == ODD
