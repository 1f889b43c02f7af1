"""The stages of an unchanged script, profiled by a command."""

import re
import shutil
from pathlib import Path

import pytest

from children import autotune, succeeded
from factories import written

SCRIPTS = Path(__file__).parents[2] / "scripts"
WRITES = """
from pathlib import Path

Path("runs").mkdir(exist_ok=True)
Path("runs", "log.txt").write_text("new")
Path("kept.txt").write_text("again")
"""


def script_in(folder, **defaults):
    """A script with other defaults of its arguments, and a sleep in the place of long computing."""
    source = (SCRIPTS / "plain_loop.py").read_text()
    for name, value in defaults.items():
        flag = f'--{name.replace("_", "-")}", type='
        source, count = re.subn(rf"({re.escape(flag)}\w+, default=)[^)]*", rf"\g<1>{value}", source)
        assert count == 1
    (folder / "train.py").write_text(source)


def test_a_script_that_waits_for_its_disk_is_said_to_wait_for_loading(tmp_path):
    script_in(tmp_path, epochs="100000")
    counts = "open('starts.txt', 'a').write('started ')\n"
    written(tmp_path, WRITES + counts + (tmp_path / "train.py").read_text(), "train.py")
    written(tmp_path, "of an earlier run", "kept.txt")
    done = succeeded(autotune(tmp_path, "profile", "train.py", "--", "--read-seconds", "0.002"))
    assert "bottleneck of your settings is loading." in done.stdout
    assert re.search(r"^loader, num_workers=0 +[\d.]+ +0\.03", done.stdout, re.MULTILINE)
    assert re.search(r"^optimizer step +[\d.]+ +0\.0", done.stdout, re.MULTILINE)
    assert re.search(r"Training reaches [\d.]+/s, \d+ % of that phase by itself", done.stdout)
    assert "aten::" in done.stdout
    assert (tmp_path / "starts.txt").read_text() == "started ", "one run tells all"
    assert "command: python train.py --read-seconds 0.002\n" in done.stderr
    assert "write to: runs, the current directory (later checkpoints" in done.stderr
    assert "each run overwrites: kept.txt\n" in done.stderr
    assert [path.name for path in (tmp_path / "studies").iterdir()] == ["kept"]


@pytest.mark.parametrize("words", [("--device", "cpu"), ("--baseline", "batch_size=4")])
def test_what_the_script_decides_is_no_option_of_its_profile(words, tmp_path):
    shutil.copy(SCRIPTS / "plain_loop.py", tmp_path / "train.py")
    done = autotune(tmp_path, "profile", "train.py", *words)
    assert done.returncode == 2
    assert "train.py is run as a training script: " in done.stderr
