"""Shorten long attributes for the pages of Optuna Dashboard; the study keeps them whole.

A page shows each attribute on one line. The blocks of a measurement would make it ten times as wide
as its window.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

# Characters that fit in a window of 1200 pixels beside the list of trials.
_MOST_CHARACTERS = 60
_LENGTH = "content-length"


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
