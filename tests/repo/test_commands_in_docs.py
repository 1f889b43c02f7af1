"""Command lines in README and docs: each command and option that they name exists."""

from __future__ import annotations

import re

import pytest

from autotune.cli import cli
from documented_lines import LINES

# What follows is the script's.
SCRIPTS = re.compile(r" -- | --$")
# A launcher's words, for example.
QUOTED = re.compile(r"\"[^\"]*\"")


@pytest.mark.parametrize("line", LINES)
def test_each_command_and_option_of_the_docs_exists(line: str) -> None:
    name, *words = QUOTED.sub("", SCRIPTS.split(line)[0]).split()
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
    assert "search train.py -- --epochs 90" in LINES
