"""Running dashboards in tests: real processes, and requests as a program would send them."""

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from children import stop


@dataclass(frozen=True)
class Answer:
    """The content of an answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


@dataclass
class RunningDashboard:
    """A dashboard that answers."""

    url: str
    said: str
    """On stderr until it was ready."""
    process: subprocess.Popen[str]

    @property
    def port(self) -> int:
        """The address at which it listens."""
        return int(urlsplit(self.url).port or 0)

    def ask(self, method: str, path: str, **headers: str) -> Answer:
        """Send a request; Host may be anything."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, headers={"Host": f"127.0.0.1:{self.port}", **headers})
            response = connection.getresponse()
            fields = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, fields, response.read())
        finally:
            connection.close()

    def end(self, number: int) -> tuple[int, str]:
        """Send a signal; the exit code, and what was said after it."""
        code = stop(self.process, number)
        assert self.process.stderr is not None
        return code, self.process.stderr.read()


@contextmanager
def running_dashboard(folder: Path, study: str, *flags: str) -> Iterator[RunningDashboard]:
    """`autotune dashboard` in `folder`, killed at the end where it still runs."""
    package = str(Path(__file__).parent.parent)
    process = subprocess.Popen(
        [sys.executable, "-m", "autotune", "dashboard", study, *flags],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": package},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield _ready(process)
        finally:
            process.kill()


def _ready(process: subprocess.Popen[str]) -> RunningDashboard:
    said = []
    assert process.stderr is not None
    for line in process.stderr:
        said.append(line)
        if "http://" in line:
            url = next(word for word in line.split() if word.startswith("http://"))
            return RunningDashboard(url, "".join(said), process)
    raise AssertionError(f"the dashboard did not start:\n{''.join(said)}")
