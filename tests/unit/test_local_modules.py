"""Modules that a model.py imports from its own folder are part of a study's identity."""

from __future__ import annotations

import hashlib
import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from autotune.training.inspection import local_modules
from covering import covers


@covers("R10")
def test_modules_of_the_models_folder_are_named_with_their_digests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "model.py": "import parts_of_this_test.layers\n",
        "parts_of_this_test/__init__.py": "",
        "parts_of_this_test/layers.py": "WIDTH = 8\n",
        "parts_of_this_test/unused.py": "",
        "site-packages/installed_in_this_test.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for folder in (tmp_path, tmp_path / "site-packages"):
        monkeypatch.syspath_prepend(folder)
    names = ("parts_of_this_test", "parts_of_this_test.layers", "installed_in_this_test")
    for name in names:
        importlib.import_module(name)
    monkeypatch.setitem(sys.modules, "no_file_of_its_own", SimpleNamespace(__file__="_own.py"))
    monkeypatch.chdir(tmp_path)
    found = local_modules(tmp_path / "model.py")
    for name in names:
        monkeypatch.delitem(sys.modules, name)
    assert found == {
        name: hashlib.sha256(files[name].encode()).hexdigest()
        for name in ("parts_of_this_test/__init__.py", "parts_of_this_test/layers.py")
    }
