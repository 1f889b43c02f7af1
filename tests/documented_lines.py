"""Command lines of README and docs."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# A command line: alone in a line of a block, or in backticks.
BLOCK = re.compile(r"^ *```.*?\n(.*?)```", re.MULTILINE | re.DOTALL)
IN_BLOCK = re.compile(r"^ *(?:\$ )?autotune ([^\n]*)", re.MULTILINE)
# Of another program, in a block; and of ours for developers, anywhere.
PROGRAMS = (
    "pip|pipx|export|torchrun|optuna-dashboard|ssh|sbatch|srun|mpirun|tensorboard|make|python"
)
OTHERS = re.compile(rf"^ *(?:\$ )?((?:{PROGRAMS}) [^\n#]*)", re.MULTILINE)
FOR_DEVELOPERS = re.compile(r"(make|python -m) ((?:benchmarks\.)?[a-z][a-z_.-]*)(?=[`\s])")
IN_PROSE = re.compile(r"`autotune ([^`]*)`")
# What follows is not the command's: a comment, another program, a file for its output.
END = re.compile(r"\s#|[|;&>]")
# In decisions stand commands as they were when a decision was made.
OLD = {"decisions.md", "benchmarks.md"}


def lines_of(page: Path) -> list[str]:
    """The command lines of a page, less `autotune`."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    found = [line for block in BLOCK.findall(text) for line in IN_BLOCK.findall(block)]
    found += IN_PROSE.findall(BLOCK.sub("", text))
    return [" ".join(END.split(line)[0].split()) for line in found]


def others_of(page: Path) -> list[str]:
    """The lines of other programs in the blocks of a page."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    return [line.strip() for block in BLOCK.findall(text) for line in OTHERS.findall(block)]


LINES = sorted({line for page in PAGES if page.name not in OLD for line in lines_of(page)})
