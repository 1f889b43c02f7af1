"""The system's Chromium, and pages that are watched: what they report, and whom they ask."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Route

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
# As if somebody else's name server said so; no other name is looked up.
_NAMES = "MAP evil.example 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
# What a page holds itself asks nobody.
_OWN = {"data", "blob", "file", "about"}


def chromium() -> str | None:
    """The program; None where it is not installed."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


@contextmanager
def launched(program: str) -> Iterator[Browser]:
    """A browser without a window, which finds no machine but this one."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        arguments = [f"--host-resolver-rules={_NAMES}"]
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Watched:
    """Errors of a page and its requests to other machines."""

    errors: list[str] = field(default_factory=list)
    """On its console, or thrown."""
    outside: list[str] = field(default_factory=list)
    """Addresses of other machines; these requests do not get through."""


def watch(page: Page) -> Watched:
    """Note what `page` does from now on."""
    watched = Watched()

    def stop(route: Route) -> None:
        watched.outside.append(route.request.url)
        route.abort()

    def heard(message: ConsoleMessage) -> None:
        if message.type == "error":
            watched.errors.append(message.text)

    page.route(lambda address: not is_own(address), stop)
    page.on("console", heard)
    page.on("pageerror", lambda error: watched.errors.append(str(error)))
    page.on("websocket", lambda socket: watched.outside.append(socket.url))
    return watched


def is_own(address: str) -> bool:
    """Return True if an address is this machine's, or no machine's."""
    parts = urlsplit(address)
    return parts.scheme in _OWN or parts.hostname in {"127.0.0.1", "localhost"}
