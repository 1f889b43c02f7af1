"""Modules of the user's own: what is imported before a fork, and their digests."""

import ast
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.process.child.warm_host import (
    preload,
    sets_environment,
    sets_variables_before_torch,
    shadowed,
)
from covering import covers

# Modules of the standard library that nothing here imports otherwise.
SOURCE = """
import this_does_not_exist
import cgitb_is_gone, wave
from xml.sax import saxutils
if __name__ == "__main__":
    import mailbox
else:
    import netrc
def later():
    import nntplib_or_so, plistlib
try:
    import sndhdr_is_gone
except ImportError:
    import quopri
"""
NAMES = ["wave", "xml.sax.saxutils", "mailbox", "netrc", "plistlib", "quopri"]


def test_modules_that_a_file_imports_when_loaded_are_imported_before(tmp_path, monkeypatch):
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "model.py").write_text(SOURCE)
    preload(tmp_path / "model.py")
    found = [name for name in NAMES if name in sys.modules]
    assert found == ["wave", "xml.sax.saxutils", "mailbox", "netrc", "quopri"]


def test_a_tracker_is_left_to_the_trial_whose_switches_it_reads_when_imported(
    tmp_path, monkeypatch
):
    package = tmp_path / "site-packages"
    package.mkdir()
    for name in ("clearml", "no_tracker"):
        (package / f"{name}.py").write_text("class Task: pass")
    monkeypatch.syspath_prepend(str(package))
    script = tmp_path / "script" / "train.py"
    script.parent.mkdir()
    script.write_text("from clearml import Task\nimport no_tracker")
    preload(script)
    assert "no_tracker" in sys.modules
    assert "clearml" not in sys.modules
    del sys.modules["no_tracker"]


@pytest.mark.parametrize("source", ["def broken(:\n", "\0", "import sys; sys.exit(3)\n"])
def test_a_file_that_cannot_be_read_is_left_to_the_trial(source, tmp_path):
    (tmp_path / "model.py").write_text(source)
    preload(tmp_path / "model.py")


@pytest.mark.parametrize(
    ("line", "sets"),
    [
        ("rank = int(os.environ.get('RANK', 0))", False),
        ("rank = os.environ['RANK']", False),
        ("is_there = 'RANK' in os.environ and 'X' not in os.environ", False),
        ("settings = os.environ.copy()", False),
        ("os.environ['OMP_NUM_THREADS'] = '1'", True),
        ("os.environ.setdefault('OMP_NUM_THREADS', '1')", True),
        ("os.environ |= {'A': 'b'}", True),
        ("del os.environ['A']", True),
        ("environ = os.environ", True),
        ("from os import environ\nenviron['OMP_NUM_THREADS'] = '1'", True),
        ("from os import environ\nrank = int(environ.get('RANK', 0))", False),
        ("from os import putenv\nputenv('A', 'b')", True),
        ("from dotenv import load_dotenv\nload_dotenv()", True),
        ("put(os.environ)", True),
        ("os.putenv('A', 'b')", True),
    ],
)
def test_a_file_that_only_reads_the_environment_sets_nothing(line, sets):
    assert sets_environment(ast.parse(f"import os\n{line}\n")) == sets


@pytest.mark.parametrize(
    ("script", "sets"),
    [
        ("import setup\nimport torch", True),
        ("import torch\nimport setup", False),
        ("import utils\nimport torch", True),
        ("from utils import env\nimport torch", True),
        ("import utils.plain\nimport torch", True),
        ("import plain\nfrom torch import nn", False),
        ("def main():\n    import setup\nimport torch", False),
        ("import elsewhere, json\nimport torch", False),
        ("import os, torch\nos.environ['OMP_NUM_THREADS'] = '1'", True),
    ],
)
def test_a_module_of_the_users_that_sets_variables_before_torch_is_found(script, sets, tmp_path):
    sources = {
        "train.py": script,
        "setup.py": "import os\nos.environ['OMP_NUM_THREADS'] = '1'",
        "plain.py": "import os, train\nprint(os.environ['HOME'])",
        "utils/__init__.py": "from .env import load",
        "utils/env.py": "import setup\nfrom . import plain\nload = None",
        "utils/plain.py": "",
    }
    (tmp_path / "utils").mkdir()
    for name, source in sources.items():
        (tmp_path / name).write_text(source)
    assert sets_variables_before_torch(tmp_path / "train.py") == sets


def test_a_package_that_is_installed_editable_is_the_users_own_code(tmp_path, monkeypatch):
    package = tmp_path / "checkout" / "src" / "project_of_mine"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import os\nos.environ['OMP_NUM_THREADS'] = '1'")
    monkeypatch.syspath_prepend(str(package.parent))
    (tmp_path / "train.py").write_text("import project_of_mine, torch")
    preload(tmp_path / "train.py")
    assert "project_of_mine" not in sys.modules
    assert sets_variables_before_torch(tmp_path / "train.py")


def test_what_follows_a_module_that_sets_variables_is_left_to_the_trial(tmp_path, monkeypatch):
    for name in ("wave", "quopri", "netrc"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "setup.py").write_text("import os\nos.environ['HF_HOME'] = '/data'")
    (tmp_path / "plain.py").write_text("import wave, setup, quopri")
    (tmp_path / "model.py").write_text("import plain, netrc")
    preload(tmp_path / "model.py")
    assert "wave" in sys.modules, "it comes before, in a module of the user's own"
    assert not {"quopri", "netrc"} & set(sys.modules)


def test_a_name_that_is_taken_is_told(tmp_path):
    for name in ("model.py", "json.py", "mine.py"):
        (tmp_path / name).write_text("")
    assert shadowed(tmp_path / "model.py") == ["json"]


FILES = {
    "project/train/model.py": "import layers.deep, shared, installed\n",
    "project/train/layers/__init__.py": "",
    "project/train/layers/deep.py": "WIDTH = 8\n",
    "project/train/layers/unused.py": "",
    "project/shared.py": "import torch_of_this_test\n",
    "project/torch_of_this_test.py": "",
    "env/site-packages/installed.py": "import linked\n",
    "cache/linked.py": "",
}
PROGRAM = """
import json, runpy, sys, types
from pathlib import Path
from autotune.process.common.imports import own_modules

sys.modules["no_file_of_its_own"] = types.SimpleNamespace(__file__="_own.py")
model = Path(sys.argv[1])
runpy.run_path(str(model))
print(json.dumps([own_modules(model), own_modules(model, model.parents[1])]))
"""


def digest(name):
    return hashlib.sha256(FILES[name].encode()).hexdigest()


@covers("R10")
def test_modules_of_the_users_own_are_named_with_their_digests(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "env/site-packages/linked.py").symlink_to(tmp_path / "cache/linked.py")
    places = ("project/train", "project", "env/site-packages")
    path = [*(str(tmp_path / place) for place in places), *filter(None, sys.path)]
    program = f"import sys; sys.path[:0] = {path!r}\n{PROGRAM}"
    model = tmp_path / "project/train/model.py"
    run = subprocess.run(
        [sys.executable, "-c", program, model], capture_output=True, text=True, check=True
    )
    beside, below = json.loads(run.stdout)
    named = ("layers/__init__.py", "layers/deep.py", "../shared.py", "../torch_of_this_test.py")
    found = {
        name: digest(str(Path("project/train", name)).replace("train/../", "")) for name in named
    }
    assert beside == found
    assert set(below) == {
        *("train/layers/__init__.py", "train/layers/deep.py", "shared.py", "torch_of_this_test.py"),
    }
