"""Commands, searches and studies do what they did when the goldens were written.

`tests/goldens/README.md` says what they hold, and what to do where one differs.
"""

import difflib
import itertools
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from children import succeeded
from goldens.write import PARTS, golden

WRITER = Path(__file__).parents[2] / "goldens" / "write.py"
STUDIES = WRITER.parent / "studies"
# `make test-long` replays all five.
SEEDS = range(int(os.environ.get("AUTOTUNE_GOLDEN_SEEDS", "1")))
_MOST_LINES = 40
_FLOAT = re.compile(r"-?\d+(?:\.\d+(?:e[-+]?\d+)?|e[-+]?\d+)")
_TOLERANCE = 2e-6
"""Two units of a golden's last digit."""


def written(folder, *arguments):
    """Return what the writer writes today, name to text. Its clock is of a process of its own."""
    command = [sys.executable, str(WRITER), "--into", str(folder), *arguments]
    succeeded(subprocess.run(command, capture_output=True, text=True, check=False))
    return {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.txt")}


def differences(name, before, now):
    """Return the first lines of a golden that are others now."""
    old, new = before.splitlines(), now.splitlines()
    if len(old) == len(new):
        old = [there if alike(line, there) else line for line, there in zip(old, new, strict=True)]
    found = difflib.unified_diff(old, new, f"{name}, golden", f"{name}, now", lineterm="", n=0)
    return list(itertools.islice(found, _MOST_LINES))


def alike(line, other):
    """Return whether two lines are the same but for the rounding of floats."""
    if line == other or _FLOAT.split(line) != _FLOAT.split(other):
        return line == other
    pairs = zip(_FLOAT.findall(line), _FLOAT.findall(other), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=_TOLERANCE, abs_tol=1e-8) for a, b in pairs)


def of_seed(trace, seed):
    """Return the part of a trace that is of one seed."""
    (found,) = re.findall(rf"^=== seed {seed} .*?(?=^=== |\Z)", trace, re.DOTALL | re.MULTILINE)
    return str(found)


@pytest.mark.parametrize("part", [part for part in PARTS if part != "traces"])
def test_it_is_what_it_was(part, tmp_path):
    texts = written(tmp_path, part)
    assert texts
    found = [line for name, now in texts.items() for line in differences(name, golden(name), now)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_searches_go_as_they_went(seed, tmp_path):
    texts = written(tmp_path, "traces", "--seeds", str(seed))
    assert texts
    found = [
        line
        for name, now in texts.items()
        for line in differences(name, of_seed(golden(name), seed), now)
    ]
    assert not found, "\n".join(found)


def test_the_kept_studies_name_no_machine():
    files = [path for path in STUDIES.rglob("*") if path.is_file()]
    assert files
    for path in files:
        found = re.search(
            rb"(?<![\w/.])/(home|root|tmp|work|usr|proc)\b[^\"'\s]*", path.read_bytes()
        )
        assert found is None or found[0].startswith(b"/usr/bin/g++"), f"{path.name}: {found}"
