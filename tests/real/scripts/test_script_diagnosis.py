"""The stages of an unchanged script, profiled by a command."""

import json
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
    lines = (tmp_path / "train.py").read_text().splitlines()
    (sleeps,) = (n for n, line in enumerate(lines, start=1) if "time.sleep(" in line)
    words = ("--json", "--", "--read-seconds", "0.002")
    done = succeeded(autotune(tmp_path, "profile", "train.py", *words))
    found = json.loads(done.stdout)
    assert found["bottleneck"] == "loading"
    assert 0 < found["phases"]["loader, num_workers=0"] < 1 / 0.002
    assert found["phases"]["optimizer step"] > found["reached"] > 0
    first = found["findings"][0]
    assert first["name"] == "waiting for data"
    assert first["share"] > 0.5
    assert f"train.py:{sleeps}" in first["evidence"]
    assert "num_workers" in first["settings"]
    assert found["next"] == "autotune search train.py -- --read-seconds 0.002"
    assert f"\nnext: {found['next']}" in done.stderr
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
