"""Makes the pictures in docs/ and README.md from pages that are really written.

    python docs/pictures.py report studies/digits_cnn

A browser opens the page from the disk, without a network. It is Playwright's Chromium, or the one
of the system where PLAYWRIGHT_CHROMIUM names its path or `chromium` is on the PATH.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

DOCS = Path(__file__).resolve().parent
WIDTH, HEIGHT, SCALE = 900, 1000, 2


def main() -> None:
    """Make one picture."""
    parser = argparse.ArgumentParser()
    parser.add_argument("picture", choices=["report"])
    parser.add_argument("study", help="As `autotune report` takes it.")
    parser.add_argument("--out", type=Path, help="Default: docs/PICTURE.png")
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--whole", action="store_true", help="The page to its end.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        page = Path(name) / "report.html"
        command = [sys.executable, "-m", "autotune", "report", arguments.study, "--html", str(page)]
        subprocess.run(command, check=True)
        out = arguments.out or DOCS / f"{arguments.picture}.png"
        photograph(page.as_uri(), out, dark=arguments.dark, whole=arguments.whole)


def photograph(url: str, target: Path, *, dark: bool = False, whole: bool = False) -> None:
    """What a browser shows of a page, as a PNG file."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_installed(), args=["--no-sandbox"])
        page = browser.new_page(
            viewport={"width": WIDTH, "height": HEIGHT},
            device_scale_factor=SCALE,
            color_scheme="dark" if dark else "light",
        )
        page.goto(url)
        page.screenshot(path=target, full_page=whole)
        browser.close()
    print(f"Wrote {target}", file=sys.stderr)


def _installed() -> str | None:
    """The system's browser; None for Playwright's own."""
    return os.environ.get("PLAYWRIGHT_CHROMIUM") or shutil.which("chromium")


if __name__ == "__main__":
    main()
