"""The documentation site: it is built without a warning, and all links within it lead somewhere."""

import subprocess
import sys
from pathlib import Path

from needs import installed

ROOT = Path(__file__).parents[3]


def test_the_site_is_built_and_every_link_within_it_leads_somewhere(tmp_path):
    for package in ("sphinx", "myst_parser", "sphinx_click", "furo"):
        installed(package)
    site = tmp_path / "site"
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", ROOT / "docs", site],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert "--accuracy-tolerance" in (site / "reference" / "options.html").read_text(
        encoding="utf-8"
    )
    assert "TrialEnded" in (site / "reference" / "python.html").read_text(encoding="utf-8")
    assert "finds the settings" in (site / "index.html").read_text(encoding="utf-8")
