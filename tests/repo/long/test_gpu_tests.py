"""The tests of devices need no more than autotune's own dependencies, pytest and hypothesis.

A machine with a GPU often has no network, so whatever else they import cannot be had there.
"""

import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
TOOLS = ("pytest", "pytest-timeout", "hypothesis")

COLLECT = """
import json, sys
import pytest
from importlib.metadata import packages_distributions
assert pytest.main(["--collect-only", "-q", "-p", "pytest_timeout", *sys.argv[1:]]) == 0
owners = packages_distributions()
loaded = {name.partition(".")[0] for name in sys.modules}
print("\\n" + json.dumps(sorted({one for name in loaded for one in owners.get(name, ())})))
"""


def with_needs(names):
    """Distributions with all that they need in turn."""
    found = set()
    while names:
        name = canonicalize_name(names.pop())
        if name in found:
            continue
        found.add(name)
        try:
            needs = map(Requirement, requires(name) or ())
        except PackageNotFoundError:  # for another platform
            continue
        names += [n.name for n in needs if n.marker is None or n.marker.evaluate({"extra": ""})]
    return found


def collected(*words):
    """Distributions that were imported while tests were collected, and what pytest printed."""
    done = subprocess.run(
        [sys.executable, "-c", COLLECT, *words],
        cwd=ROOT,
        # Else pytest imports the plugins of whatever is installed here.
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said, _, last = done.stdout.rstrip().rpartition("\n")
    return set(map(canonicalize_name, json.loads(last))), said


def test_they_import_nothing_that_may_be_missing_beside_a_gpu():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    # What trains, and what only tells more of an NVIDIA GPU is imported where it is installed.
    own = [
        Requirement(each).name
        for each in (*project["dependencies"], *extras["nvidia"], *extras["torch"])
    ]
    imported, said = collected("-m", "gpu", "tests/gpu")
    assert imported - with_needs([*own, *TOOLS]) - {"autotune"} == set()
    assert "cuda:0" in said
    assert "[cpu" not in said, "what runs on a CPU is not selected beside a GPU"
