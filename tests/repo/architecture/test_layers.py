"""Folders depend in one direction, and two processes share one vocabulary."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[3] / "autotune"
# A folder imports only from those before it. The child never imports the parent, nor the reverse.
FOLDERS = {
    "both": "values process.common knobs calling configuration",
    "child": "training.ranks training numerics scripting process.child",
    "parent": "process sampling study context accuracy comparison "
    "searching.run searching.trials searching.confirmation searching "
    "console report dashboard export commands",
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
