"""`kill -9` at any moment loses no finished trial and leaves nobody behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from covering import covers

KILLS = int(os.environ.get("AUTOTUNE_KILLS", "10"))


@covers("R5")
@pytest.mark.timeout(60 + 5 * KILLS)
def test_a_search_that_is_killed_at_random_moments_ends_as_if_it_had_not_been(tmp_path):
    script = Path(__file__).parent.parent.parent / "kill_points.py"
    arguments = [sys.executable, str(script), str(tmp_path), "0", str(KILLS)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["kills"] == KILLS
