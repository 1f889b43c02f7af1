"""The budget of the package, parameters, and who may print."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[3] / "autotune"
FILES = sorted(PACKAGE.rglob("*.py"))
MOST_LINES, MOST_MODULES = 35_475, 149
MOST_PARAMETERS = 6
# Reports on a script's own stderr; others write through rich or click.
PRINTS = {"scripting/run.py"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path):
    return str(path.relative_to(PACKAGE))


def functions():
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, Function):
                yield f"{name_of(path)}::{node.name}", node


def parameters(function):
    """Return the names of the parameters, less the object or class that a method belongs to."""
    given = function.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    names = [argument.arg for argument in named if argument is not None]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def prints(path):
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    called = (node.func for node in nodes if isinstance(node, ast.Call))
    return any(isinstance(function, ast.Name) and function.id == "print" for function in called)


def test_the_package_keeps_to_its_budget():
    """Both numbers are only ever lowered."""
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in FILES)
    assert lines <= MOST_LINES
    assert len(FILES) <= MOST_MODULES


def test_no_function_takes_too_many_parameters():
    counts = {name: len(parameters(node)) for name, node in functions()}
    assert {name: count for name, count in counts.items() if count > MOST_PARAMETERS} == {}


def test_nobody_prints_but_the_report_of_a_run():
    assert {name_of(path) for path in FILES if prints(path)} == PRINTS
