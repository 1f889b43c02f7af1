"""The dashboard answers requests to read from this machine, and no others."""

import json
from wsgiref.util import setup_testing_defaults

import pytest

from autotune.dashboard.serve import guarded
from covering import covers

LOCAL = "127.0.0.1:8080"


def application(environ, start):
    """Says yes to everything and everyone."""
    start("200 OK", [("Content-Type", "text/html"), ("Access-Control-Allow-Origin", "*")])
    return [b"yes"]


def asked(method="GET", host=LOCAL, path="/api"):
    """Status, headers and body of one request."""
    environ = {"REQUEST_METHOD": method, "HTTP_HOST": host, "PATH_INFO": path}
    setup_testing_defaults(environ)
    told = []
    body = guarded(application, "/first")(environ, lambda *given: told.append(given))
    status, headers, *_ = told[0]
    return int(status.split()[0]), dict(headers), b"".join(body)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", LOCAL, "localhost", "LOCALHOST:9", "127.0.0.2:1", "[::1]", "[::1]:8080"]
)
def test_this_machine_is_answered_whatever_the_port(host):
    assert asked(host=host)[::2] == (200, b"yes")


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8080", "127.0.0.1.evil.example"),
        *("localhost.evil.example:8080", "10.0.0.5:8080", "0.0.0.0", "[fe80::1]:8080", "", ":8080"),
        *("127.0.0.1:8080:evil", "2130706433"),
    ],
)
def test_a_name_that_somebody_else_may_have_pointed_here_is_refused(host):
    status, _, body = asked(host=host)
    assert status == 403
    assert json.loads(body)["reason"]


@covers("X6")
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "ODD"])
def test_requests_other_than_reading_are_refused(method):
    assert asked(method)[0] == 403


def test_the_bare_address_leads_to_the_first_page():
    status, headers, _ = asked("HEAD", path="/")
    assert (status, headers["Location"]) == (302, "/first")
