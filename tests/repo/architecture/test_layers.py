"""Imports: folders, private names, what is loaded."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[3] / "autotune"
# A folder imports only from those before it. The child never imports the parent, nor the reverse.
FOLDERS = {
    "both": "values process.common knobs calling configuration",
    "child": "training numerics scripting process.child",
    "parent": "process sampling study context accuracy comparison "
    "searching.run searching.trials searching.confirmation searching "
    "console report export commands",
}
SIDES = {folder: side for side, row in FOLDERS.items() for folder in row.split()}
FOREIGN = {"both": {"torch", "optuna"}, "child": {"optuna"}, "parent": {"torch"}}
FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if path.parent != PACKAGE]


def folder_of(path):
    return ".".join(path.parent.relative_to(PACKAGE).parts)


def imported(path):
    """Return the folders of this package, and the other packages, that a file imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    own = [name.split(".")[1:] for name in names if name.startswith("autotune.")]
    own = [parts for parts in own if parts[0] in SIDES]  # no name of the root package
    folders = {
        max((f for f in SIDES if f.split(".") == n[: f.count(".") + 1]), key=len) for n in own
    }
    return folders | {name.partition(".")[0] for name in names} - {"autotune"}


def test_files_import_only_from_folders_below():
    order = list(SIDES)
    for path in FILES:
        folder, found = folder_of(path), imported(path)
        side = SIDES[folder]
        below = {f for f in order[: order.index(folder) + 1] if SIDES[f] in {"both", side}}
        allowed = {"torch"} if folder == "knobs" else set()
        assert found & set(SIDES) <= below, path
        assert found & FOREIGN[side] <= allowed, path


def test_every_folder_is_listed():
    assert {folder_of(path) for path in FILES if path.name != "__init__.py"} == set(SIDES)


CHILD = ("training/", "numerics/", "scripting/", "process/child/", "knobs/")
TORCH_PRIVATE = "knobs/torch_private.py"
PRIVATE = re.compile(r"\._(?!_)")
BY_NAME = {"getattr", "hasattr", "setattr", "delattr"}
PYTHONS = {"_exit", "_fields", "_getframe", "_current_frames"}
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


CHECK = "import sys; loaded = {unloaded} & set(sys.modules); assert not loaded, loaded"


@pytest.mark.parametrize(
    "steps",
    [
        [
            ("import autotune", "torch optuna pydantic yaml numpy"),
            ("import autotune.cli", "torch optuna pydantic"),
            ("import autotune.report.data", "torch jinja2"),
            ("import autotune.searching.search", "torch"),
            # A child first takes its lifeline and its cores, which torch reads once.
            ("import autotune.process.child.warm_host, autotune.process.child.launcher", "torch"),
        ],
        [
            (
                "import autotune; autotune.load('studies/digits_cnn/recorded_best.yaml')",
                "numpy psutil optuna pandas scipy torch",
            ),
            ("from autotune.training.timing import CompileClock; CompileClock()", "torch._dynamo"),
            ("import autotune.process.child.main, autotune.training.tasks", "optuna sqlalchemy"),
        ],
    ],
    ids=["parent", "child"],
)
def test_importing_loads_nothing_that_it_does_not_need(steps):
    """Each statement, in this order in one process."""
    lines = [
        line
        for statement, unloaded in steps
        for line in (statement, CHECK.format(unloaded=set(unloaded.split())))
    ]
    subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        cwd=Path(__file__).parents[3],
        timeout=120,
        check=True,
    )
