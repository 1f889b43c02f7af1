"""Command lines of README and docs."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# A command line: alone in a line of a block, or in backticks.
BLOCK = re.compile(r"^ *```.*?\n(.*?)```|^((?: {4}\S[^\n]*\n)+)", re.MULTILINE | re.DOTALL)
IN_BLOCK = re.compile(r"^ *(?:\$ )?autotune ([^\n]*)", re.MULTILINE)
IN_PROSE = re.compile(r"`autotune ([^`]*)`")
# What follows is not the command's: a comment, another program, a file for its output.
END = re.compile(r"\s#|[|;&>]")
# In decisions stand commands as they were when a decision was made.
OLD = {"decisions.md", "benchmarks.md"}


def lines_of(page: Path) -> list[str]:
    """The command lines of a page, less `autotune`."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    found = [*_in_blocks(text, IN_BLOCK), *IN_PROSE.findall(BLOCK.sub("", text))]
    return [" ".join(END.split(line)[0].split()) for line in found]


def _in_blocks(text: str, line: re.Pattern[str]) -> list[str]:
    return [found for block in BLOCK.finditer(text) for found in line.findall(block[0])]


LINES = sorted({line for page in PAGES if page.name not in OLD for line in lines_of(page)})
