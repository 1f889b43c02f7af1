"""The suite's servers fork what the package starts; without them a run takes twice as long."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

import fork_server
import forking

PACKAGE = Path(__file__).parents[3] / "autotune"
CHILDREN = {
    name
    for path in PACKAGE.rglob("*.py")
    for name in re.findall(r'"-m", "(autotune\.[\w.]+)"', path.read_text(encoding="utf-8"))
}


def test_children_are_found():
    assert len(CHILDREN) >= 2


@pytest.mark.parametrize("name", sorted(CHILDREN))
def test_a_server_forks_what_the_package_starts(name):
    assert forking.server_for(["-m", name, "folder"]) == forking.TRAINING


@pytest.mark.parametrize("kind", fork_server._IMPORTED)
def test_what_a_server_imports_is_there(kind):
    assert [name for name in fork_server._IMPORTED[kind] if find_spec(name) is None] == []
