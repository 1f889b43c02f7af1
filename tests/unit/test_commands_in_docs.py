"""Command lines in README and docs: each command and option that they name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from autotune.cli import cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# A command line: alone in a line of a block, or in backticks.
BLOCK = re.compile(r"^ *```.*?\n(.*?)```", re.MULTILINE | re.DOTALL)
IN_BLOCK = re.compile(r"^ *(?:\$ )?autotune ([^\n]*)", re.MULTILINE)
IN_PROSE = re.compile(r"`autotune ([^`]*)`")
# What follows is not autotune's: a script's arguments, a comment, another command.
END = re.compile(r" -- | --$|\s#|[|;&>]")
# In decisions stand commands as they were when a decision was made.
OLD = {"decisions.md", "benchmarks.md"}


def lines_of(page: Path) -> list[str]:
    """The command lines of a page, less `autotune`."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    found = [line for block in BLOCK.findall(text) for line in IN_BLOCK.findall(block)]
    found += IN_PROSE.findall(BLOCK.sub("", text))
    return [" ".join(END.split(line)[0].split()) for line in found]


LINES = sorted({line for page in PAGES if page.name not in OLD for line in lines_of(page)})


@pytest.mark.parametrize("line", LINES)
def test_each_command_and_option_of_the_docs_exists(line: str) -> None:
    name, *words = line.split()
    if not name.islower() or name.startswith("-"):
        return
    assert name.rstrip(",`") in cli.commands, line
    command = cli.commands[name.rstrip(",`")]
    known = {word for param in command.params for word in (*param.opts, *param.secondary_opts)}
    if name == "run":  # behind the script everything is the script's
        words = words[: next((at for at, word in enumerate(words) if word.endswith(".py")), None)]
    given = {word.partition("=")[0].strip("[],") for word in words if word.startswith("--")}
    assert given <= known | {"--help"}, line


def test_the_lines_are_found() -> None:
    assert len(LINES) > 40
    assert "search train.py" in LINES
