"""Pages and parts of pages that are written by a program are what it writes now."""

import importlib
import re
from pathlib import Path

import pytest

from autotune.values import errors
from autotune.values.errors import AutotuneError

ROOT = Path(__file__).parents[2]
CODES = (ROOT / "docs/reference/exit-codes.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("page", "program", "function"),
    [
        ("docs/reference/settings.md", "knobs_page", "knobs_page"),
        ("docs/reference/best-yaml.md", "best_yaml_page", "best_yaml_page"),
        ("docs/benchmarks.md", "benchmarks.page", "benchmarks_page"),
        ("README.md", "results", "scripts"),
        ("docs/results.md", "results", "others"),
    ],
)
def test_a_page_has_what_its_program_writes(page, program, function, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    module = importlib.import_module(program)
    text = (ROOT / page).read_text(encoding="utf-8")
    if begin := getattr(module, "BEGIN", ""):
        text = text.partition(begin)[2].partition(module.END)[0]
    assert text == getattr(module, function)(), f"{page} is stale: `make docs`"


def test_every_error_has_its_exit_code_on_the_page():
    classes = [one for one in vars(errors).values() if isinstance(one, type)]
    codes = {one.exit_code for one in classes if issubclass(one, AutotuneError)}
    assert codes <= {int(code) for code in re.findall(r"^\| (\d+) \|", CODES, re.MULTILINE)}


def test_pages_for_users_stay_short():
    docs = ROOT / "docs"
    pages = {*docs.rglob("*.md"), ROOT / "README.md"}
    pages -= {docs / "benchmarks.md", *docs.glob("dev/*.md")}
    words = {page: len(page.read_text(encoding="utf-8").split()) for page in pages}
    assert words[ROOT / "README.md"] <= 1000
    assert max(words[page] for page in docs.glob("concepts/*.md")) <= 800
    assert sum(words.values()) <= 20_000
