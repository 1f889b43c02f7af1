"""List the texts of the package that a user may see, to be read in one go: `python docs/texts.py`.

Strings of two words or more, except docstrings and patterns. Holes are shown as `{expression}`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "autotune"


def texts(code: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each string, or of each f-string as a whole."""
    waiting: list[ast.AST] = [ast.parse(code)]
    for node in waiting:  # which grows meanwhile
        match node:
            case ast.Expr(ast.Constant()) | ast.Call(ast.Attribute(ast.Name("re"))):
                continue
            case ast.Constant(str(text)):
                yield node.lineno, text
            case ast.JoinedStr(parts):
                yield node.lineno, "".join(map(_part, parts))
            case _:
                waiting += ast.iter_child_nodes(node)


def _part(part: ast.expr) -> str:
    match part:
        case ast.Constant(text):
            return str(text)
        case ast.FormattedValue(value):
            return f"{{{ast.unparse(value)}}}"
    return ast.unparse(part)


def main() -> None:
    """Print the texts, file by file."""
    for path in sorted(PACKAGE.rglob("*.py")):
        found = sorted(texts(path.read_text(encoding="utf-8")))
        told = [(line, text) for line, text in found if re.search(r"[A-Za-z]{2} \S", text)]
        if told:
            print(f"\n{path.relative_to(PACKAGE.parent)}")
        for line, text in told:
            print(f"{line:5}  {text!r}")
    for path in sorted(PACKAGE.rglob("*.html")):
        print(f"\n{path.relative_to(PACKAGE.parent)}")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if text := re.sub(r"<[^>]*>|\s+", " ", line).strip():
                print(f"{number:5}  {text}")


if __name__ == "__main__":
    main()
