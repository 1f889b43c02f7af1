"""Who asks whether a workload is a script or a model.py."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[3] / "autotune"
# The script's own modules, and those whose texts a person reads.
OF_SCRIPTS = (
    *("scripting/", "configuration/script.py", "context/script_", "commands/script_options.py"),
    *("console/", "report/"),
)
MOST = 11
"""Only ever lowered."""
KINDS = {"script", "is_script", "is_of_script", "ScriptTraits"}


def name_of(node):
    match node:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def asks(tree):
    """Yield the expressions that ask: tests, and comparisons with None, of the script itself."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left, [ast.Is() | ast.IsNot()], [ast.Constant(None)]):
                found = [left]
            case ast.Call(ast.Name("isinstance" | "bool"), arguments):
                found = arguments
            case ast.If(test) | ast.IfExp(test) | ast.comprehension(ifs=[test]):
                found = [test, *(test.values if isinstance(test, ast.BoolOp) else ())]
            case ast.BoolOp(values=values):
                found = values[:-1]
            case _:
                continue
        if any(name_of(one) in KINDS for one in found):
            yield ast.unparse(node)


def test_the_question_is_asked_rarely():
    """What differs between the two kinds of workload is a method of `Traits`."""
    files = sorted(PACKAGE.rglob("*.py"))
    names = {path: str(path.relative_to(PACKAGE)) for path in files}
    found = [
        f"{name}: {text}"
        for path, name in names.items()
        if not name.startswith(OF_SCRIPTS)
        for text in asks(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert len(found) <= MOST, "\n".join(found)
    assert found, "none is recognised any more"
