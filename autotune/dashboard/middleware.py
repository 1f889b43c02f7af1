"""WSGI applications in front of Optuna Dashboard: refuse requests, begin with the note, shorten.

The dashboard deletes studies for anybody who can reach it, and a page of another site can make a
browser send requests to this machine. The Host header shows requests under the site's own name (DNS
rebinding), the Origin header direct ones.

A page shows each attribute of a trial on one line. The blocks of a measurement would make it ten
times as wide as its window. The study keeps them whole.
"""

from __future__ import annotations

import ipaddress
import json
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_READING = ("GET", "HEAD", "OPTIONS")
_FORBIDDEN, _NOT_ALLOWED = "403 Forbidden", "405 Method Not Allowed"
# The dashboard lets every site read artifacts.
_DROPPED = "access-control-allow-origin"
_ADDED = [
    ("X-Content-Type-Options", "nosniff"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
]
# Characters that fit in a window of 1200 pixels beside the list of trials.
_MOST_CHARACTERS = 60
_LENGTH = "content-length"


@dataclass(frozen=True)
class Guard:
    """A WSGI application that checks requests before it passes them to another one."""

    app: WSGIApplication
    allow_edit: bool = False
    exposed: bool = False
    """True: requests may name any address, or this machine's name."""

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        """Answer a request, or refuse it with a reason in the form that the dashboard shows."""
        method, host = environ["REQUEST_METHOD"], environ.get("HTTP_HOST", "")
        origin = environ.get("HTTP_ORIGIN")
        if not self._is_known(host):
            return _refuse(start, _FORBIDDEN, f"{host!r} is not the address of this dashboard.")
        if method not in _READING and not self.allow_edit:
            reason = "This dashboard is read-only. `autotune dashboard --allow-edit` changes that."
            return _refuse(start, _NOT_ALLOWED, reason)
        if method not in _READING and origin not in (None, f"http://{host}"):
            return _refuse(start, _FORBIDDEN, f"{origin!r} may not change this study.")
        return self.app(environ, _with_headers(start))

    def _is_known(self, host: str) -> bool:
        """Return True if a Host header names this machine; any port, as ports may be forwarded."""
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        name = name.strip("[]").lower()
        if name == "localhost":
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return self.exposed and name == socket.gethostname().lower()
        return self.exposed or address.is_loopback


def _refuse(start: StartResponse, status: str, reason: str) -> list[bytes]:
    body = json.dumps({"reason": reason}).encode()
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    if status == _NOT_ALLOWED:
        headers.append(("Allow", ", ".join(_READING)))
    start(status, headers)
    return [body]


def _with_headers(start: StartResponse) -> StartResponse:
    def started(
        status: str, headers: list[tuple[str, str]], failure: Any = None, /
    ) -> Callable[[bytes], object]:
        kept = [(name, value) for name, value in headers if name.lower() != _DROPPED]
        return start(status, kept + _ADDED, failure)

    return started


@dataclass(frozen=True)
class Opened:
    """A WSGI application that leads the bare address to a page of another one."""

    app: WSGIApplication
    page: str

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        """Answer a request, that for "/" by naming the page."""
        if environ.get("PATH_INFO") not in ("", "/"):
            return self.app(environ, start)
        start("302 Found", [("Location", self.page), ("Content-Length", "0")])
        return []


@dataclass(frozen=True)
class Shortened:
    """A WSGI application in front of the dashboard that shortens attributes in its answers."""

    app: WSGIApplication

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        """Answer a request; only attributes in JSON answers to the pages are changed."""
        if not environ.get("PATH_INFO", "").startswith("/api/"):
            return self.app(environ, start)
        told: list[Any] = []
        written: list[bytes] = []

        def started(*status_and_headers: Any) -> Callable[[bytes], object]:
            told[:] = status_and_headers
            return written.append

        body = b"".join([*_all_of(self.app(environ, started)), *written])
        status, headers, *failure = told
        if body and _is_json(headers):
            body = json.dumps(_cut(json.loads(body))).encode()
            headers = [(name, value) for name, value in headers if name.lower() != _LENGTH]
            headers.append(("Content-Length", str(len(body))))
        start(status, headers, *failure)
        return [body]


def _all_of(parts: Iterable[bytes]) -> list[bytes]:
    try:
        return list(parts)
    finally:
        close = getattr(parts, "close", None)
        if close is not None:
            close()


def _is_json(headers: list[tuple[str, str]]) -> bool:
    return any(
        name.lower() == "content-type" and value.startswith("application/json")
        for name, value in headers
    )


def _cut(answer: Any) -> Any:
    """Return the answer with every list named user_attrs shortened."""
    match answer:
        case dict():
            return {
                name: [_attribute(one) for one in part] if _holds(name, part) else _cut(part)
                for name, part in answer.items()
            }
        case list():
            return [_cut(part) for part in answer]
        case _:
            return answer


def _holds(name: str, part: Any) -> bool:
    return name == "user_attrs" and isinstance(part, list)


def _attribute(one: Any) -> Any:
    """Return a pair of key and value with the value shortened, if it is long text."""
    value = one.get("value") if isinstance(one, dict) else None
    if not isinstance(value, str) or len(value) <= _MOST_CHARACTERS:
        return one
    return {**one, "value": f"{value[:_MOST_CHARACTERS]}…"}
