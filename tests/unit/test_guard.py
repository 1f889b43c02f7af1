"""The dashboard answers requests to read, and to edit only where that is allowed."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest

from autotune.dashboard.middleware import Guard
from covering import covers

LOCAL = "127.0.0.1:8080"


def application(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
    """Says yes to everything and everyone."""
    start("200 OK", [("Content-Type", "text/html"), ("Access-Control-Allow-Origin", "*")])
    return [b"yes"]


def asked(
    method: str = "GET", host: str = LOCAL, origin: str | None = None, **flags: bool
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one request."""
    environ: dict[str, Any] = {"REQUEST_METHOD": method, "HTTP_HOST": host}
    if origin is not None:
        environ["HTTP_ORIGIN"] = origin
    setup_testing_defaults(environ)
    told: list[Any] = []
    body = Guard(application, **flags)(environ, lambda *given: told.append(given))  # type: ignore[arg-type, return-value]
    status, headers, *_ = told[0]
    return int(status.split()[0]), dict(headers), b"".join(body)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", LOCAL, "localhost", "LOCALHOST:9", "127.0.0.2:1", "[::1]", "[::1]:8080"]
)
def test_this_machine_is_answered_whatever_the_port(host: str) -> None:
    assert asked(host=host)[::2] == (200, b"yes")


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8080",
        "10.0.0.5:8080",
        "0.0.0.0",
        "[fe80::1]:8080",
        "",
        ":8080",
        "127.0.0.1:8080:evil",
        "2130706433",
    ],
)
def test_a_name_that_somebody_else_may_have_pointed_here_is_refused(host: str) -> None:
    status, _, body = asked(host=host)
    assert status == 403
    assert json.loads(body)["reason"]


@covers("X6")
def test_exposed_it_answers_to_addresses_and_to_the_name_of_the_machine_only() -> None:
    hosts = ["10.0.0.5:8080", "[fe80::1]:8080", f"{socket.gethostname()}:8080", "localhost"]
    assert [asked(host=host, exposed=True)[0] for host in hosts] == [200] * 4
    assert asked(host="evil.example", exposed=True)[0] == 403
    assert asked(host=f"{socket.gethostname()}:8080")[0] == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "TRACE", "ODD"])
def test_requests_other_than_reading_are_refused_with_what_to_do(method: str) -> None:
    status, headers, body = asked(method)
    assert status == 405
    assert headers["Allow"] == "GET, HEAD, OPTIONS"
    assert "--allow-edit" in json.loads(body)["reason"]


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_reading_is_allowed_from_anywhere_on_this_machine(method: str) -> None:
    assert asked(method, origin="http://evil.example")[0] == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (None, 200),
        (f"http://{LOCAL}", 200),
        ("http://evil.example", 403),
        ("http://127.0.0.1:9", 403),
        ("null", 403),
    ],
)
def test_only_the_dashboards_own_pages_may_edit_where_that_is_allowed(
    origin: str | None, status: int
) -> None:
    assert asked("DELETE", origin=origin, allow_edit=True)[0] == status


def test_editing_does_not_open_it_to_other_names() -> None:
    assert asked("DELETE", host="evil.example", allow_edit=True)[0] == 403


def test_no_other_site_may_read_what_is_attached() -> None:
    headers = asked()[1]
    assert "Access-Control-Allow-Origin" not in headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Type"] == "text/html"
