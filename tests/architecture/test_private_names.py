"""Private names of torch are in one module, and those of Optuna, click and rich in a list."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "autotune"
CHILD = ("training", "numerics", "scripting", "child", "knobs")
TORCH_PRIVATE = "knobs/torch_private.py"
# Private names of Optuna, by file: its public API has no way to write a trial as one step.
OF_OPTUNA = {
    "dashboard/attach.py",
    "dashboard/attributes.py",
    "study/journal_sync.py",
    "study/revocations.py",
    "study/study.py",
}
PRIVATE = re.compile(r"\._(?!_)")
PYTHONS = {"_exit", "_getframe"}
"""Names of os and sys that Python documents."""


def private(path: Path) -> Iterator[str]:
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


def found_in(*folders: str) -> dict[str, list[str]]:
    files = [path for folder in folders for path in sorted((PACKAGE / folder).rglob("*.py"))]
    found = {str(path.relative_to(PACKAGE)): list(private(path)) for path in files}
    return {name: names for name, names in found.items() if names}


def test_private_names_of_torch_are_in_one_module() -> None:
    assert set(found_in(*CHILD)) == {TORCH_PRIVATE}


def test_private_names_of_other_libraries_are_in_listed_files() -> None:
    others = [path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name not in CHILD]
    assert set(found_in(*others)) <= OF_OPTUNA
