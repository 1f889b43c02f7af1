"""Private names of torch are in one module; those of Optuna, click and rich are not used."""

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[3] / "autotune"
CHILD = ("training/", "numerics/", "scripting/", "process/child/", "knobs/")
TORCH_PRIVATE = "knobs/torch_private.py"
PRIVATE = re.compile(r"\._(?!_)")
BY_NAME = {"getattr", "hasattr", "setattr", "delattr"}
PYTHONS = {"_exit", "_fields", "_getframe"}
"""Names of os, sys and named tuples that Python documents."""


def private(path):
    """Yield the private modules that a file imports, and private attributes of others' objects."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names):
                yield from (one.name for one in names if PRIVATE.search(one.name))
            case ast.ImportFrom(str(module), names):
                full = (f"{module}.{one.name}" for one in names)
                yield from filter(PRIVATE.search, full)
            case ast.Attribute(value, attribute) if re.match(r"_(?!_)", attribute):
                own = ast.unparse(value) in {"self", "cls", "super()"}
                if not own and attribute not in PYTHONS:
                    yield ast.unparse(node)
            case ast.Call(ast.Name(function), [value, ast.Constant(str(attribute)), *_]) if (
                function in BY_NAME and re.match(r"_(?!_)", attribute)
            ):
                if ast.unparse(value) not in {"self", "cls"} and attribute not in PYTHONS:
                    yield ast.unparse(node)


def found_in(package):
    """Return the private names of others in each file of a package that has any."""
    files = sorted(package.rglob("*.py"))
    found = {str(path.relative_to(package)): list(private(path)) for path in files}
    return {name: names for name, names in found.items() if names}


def test_private_names_of_torch_are_in_one_module():
    of_child = {name for name in found_in(PACKAGE) if name.startswith(CHILD)}
    assert of_child == {TORCH_PRIVATE}


def test_private_names_of_other_libraries_are_not_used():
    found = found_in(PACKAGE)
    assert {name: found[name] for name in found if not name.startswith(CHILD)} == {}


@pytest.mark.parametrize(
    "line",
    [
        *("import optuna._imports", "from optuna.storages._rdb import models"),
        *("study._storage.get_all_studies()", 'getattr(study, "_storage", None)'),
    ],
)
def test_each_way_to_a_private_name_is_seen_in_each_folder(line, tmp_path):
    (tmp_path / "folder").mkdir()
    files = {"root.py", "folder/inside.py"}
    for name in files:
        (tmp_path / name).write_text(f"def of(study):\n    {line}\n")
    assert set(found_in(tmp_path)) == files
