"""Modules of the user's own that a model.py imports are part of a study's identity."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

from covering import covers

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
        "train/layers/__init__.py",
        "train/layers/deep.py",
        "shared.py",
        "torch_of_this_test.py",
    }
