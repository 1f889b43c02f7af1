"""House sizes, and who may print."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "autotune"
FILES = sorted(PACKAGE.rglob("*.py"))
MOST_LINES_IN_FILE = 350
MOST_LINES_IN_FUNCTION = 50
MOST_PARAMETERS = 6
REPORTING = {"progress.py", "report.py", "cli.py", "doctor.py"}

Function = ast.FunctionDef | ast.AsyncFunctionDef

by_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))


def functions(path: Path) -> list[Function]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def parameters(function: Function) -> list[str]:
    """Names of the parameters, less the object or class that a method belongs to."""
    given = function.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    names = [argument.arg for argument in named if argument is not None]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def calls_print(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and (node.func.id == "print")
    )


@by_file
def test_a_file_is_not_too_long(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES_IN_FILE


@by_file
def test_no_function_is_too_long(path: Path) -> None:
    long = [
        function.name
        for function in functions(path)
        if (function.end_lineno or 0) - function.lineno + 1 > MOST_LINES_IN_FUNCTION
    ]
    assert long == []


@by_file
def test_no_function_takes_too_many_parameters(path: Path) -> None:
    many = [f.name for f in functions(path) if len(parameters(f)) > MOST_PARAMETERS]
    assert many == []


@pytest.mark.parametrize(
    "path", [p for p in FILES if p.name not in REPORTING], ids=lambda p: str(p.relative_to(PACKAGE))
)
def test_only_the_reporting_modules_print(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not any(map(calls_print, ast.walk(tree)))


def test_the_package_has_files_to_look_at() -> None:
    assert len(FILES) > 30
