"""A MariaDB server for a test run: on a free port, in a folder of its own, gone afterwards."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from leaks import MARK
from postgres import free_port

PROGRAM, _INSTALL = "mariadbd", "mariadb-install-db"
_DEADLINE_SECONDS = 60


@contextmanager
def running_server() -> Iterator[str]:
    """The URL of the server, without a database."""
    port, own = free_port(), "root" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
    environ = {name: value for name, value in os.environ.items() if name != MARK}
    with tempfile.TemporaryDirectory(prefix="mysql-") as folder:
        place = ["--no-defaults", f"--datadir={folder}/data", f"--user={own}"]
        made = [str(shutil.which(_INSTALL)), *place, "--auth-root-authentication-method=normal"]
        subprocess.run(made, check=True, capture_output=True, env=environ, timeout=60)
        local = [f"--port={port}", "--bind-address=127.0.0.1", f"--socket={folder}/socket"]
        local += ["--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0"]  # nothing to keep
        with Path(folder, "log").open("wb") as log:
            server = subprocess.Popen(
                [str(shutil.which(PROGRAM)), *place, *local], env=environ, stdout=log, stderr=log
            )
        url = f"mysql://root@127.0.0.1:{port}"
        try:
            _wait(port, server, Path(folder, "log"))
            yield url
        finally:
            server.kill()
            server.wait(timeout=60)


def create_database(server: str, name: str) -> str:
    """The URL of a new, empty database."""
    with _connected(server) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE `{name}`")
    return f"{server}/{name}"


def _connected(server: str):
    import pymysql

    return pymysql.connect(host="127.0.0.1", port=int(server.rpartition(":")[2]), user="root")


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    raise AssertionError(log.read_text(encoding="utf-8", errors="replace"))
