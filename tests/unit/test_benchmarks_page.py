"""docs/benchmarks.md is what benchmarks/page.py makes of the results; decisions stay short."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent.parent
MOST_LINES = 15


@pytest.fixture(scope="module")
def page() -> ModuleType:
    place = importlib.util.spec_from_file_location("page", ROOT / "benchmarks" / "page.py")
    assert place is not None
    assert place.loader is not None
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


def test_the_page_is_what_the_results_say_now(page: ModuleType) -> None:
    written = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert written == page.benchmarks_page(), "stale: run `python -m benchmarks.page`"


def test_every_result_is_on_the_page_once(page: ModuleType) -> None:
    named = [name for names in page.SECTIONS.values() for name in names]
    assert sorted(named) == sorted(path.stem for path in page.RESULTS.glob("*.json"))


def test_a_number_keeps_its_digits_and_a_gap_is_an_empty_cell(
    page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one.json").write_text(
        '{"title": "One", "about": "A table.", "command": "make it", "recorded": "2026-11-22",'
        ' "machine": "2 cores", "load": "0.1", "columns": ["study", "ratio", "note"],'
        ' "rows": [["small", 1.50, null]]}',
        encoding="utf-8",
    )
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    monkeypatch.setattr(page, "SECTIONS", {"Tables": ("one",)})
    lines = page.benchmarks_page().splitlines()
    assert "    make it" in lines
    assert "| small | 1.50 |  |" in lines


def test_every_decision_has_a_date_and_at_most_fifteen_lines() -> None:
    text = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")
    heading, *records = re.split(r"^## ", text, flags=re.MULTILINE)
    assert heading.startswith("# Decisions")
    days = []
    for record in records:
        title, *body = record.strip().splitlines()
        dated = re.fullmatch(r"(\d{4}-\d\d-\d\d): \S.*", title)
        assert dated is not None, title
        assert len(body) < MOST_LINES, title
        days.append(dated[1])
    assert len(days) > 20
    assert days == sorted(days), "the newest stands last"
