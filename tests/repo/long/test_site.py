"""The documentation site: it is built without a warning, and all links within it lead somewhere."""

import sys
from pathlib import Path

from children import completed, succeeded
from needs import installed

ROOT = Path(__file__).parents[3]


def test_the_site_is_built_and_every_link_within_it_leads_somewhere(tmp_path):
    for package in ("sphinx", "myst_parser", "sphinx_click", "furo"):
        installed(package)
    site = tmp_path / "site"
    build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q"]
    succeeded(completed(ROOT, [*build, ROOT / "docs", site]))
    for page, words in {
        "reference/options.html": "--accuracy-tolerance",
        "reference/python.html": "TrialEnded",
        "index.html": "finds the settings",
    }.items():
        assert words in (site / page).read_text(encoding="utf-8")
