"""docs/benchmarks.md is what benchmarks/page.py makes of the results."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent.parent


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
