"""A PostgreSQL server for a test run: on a free port, in a folder of its own, gone afterwards."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leaks import MARK

_INSTALLED = Path("/usr/lib/postgresql")
# The server refuses to be root. It carries no mark: no test started it.
_USER = "postgres"


def programs() -> Path | None:
    """Return the folder of `initdb` and `pg_ctl`; None where PostgreSQL is not installed."""
    found = shutil.which("pg_ctl")
    if found:
        return Path(found).resolve().parent
    folders = sorted(_INSTALLED.glob("*/bin"), key=lambda path: float(path.parent.name))
    return folders[-1] if folders else None


@contextmanager
def running_server() -> Iterator[str]:
    """The URL of the server, without a database."""
    where = programs()
    assert where is not None, "PostgreSQL is not installed"
    # The folders of tests are their owner's alone, and the server is another user where that is
    # root.
    usual = os.environ.get("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    with tempfile.TemporaryDirectory(prefix="postgres-", dir=usual) as folder:
        if os.getuid() == 0:
            shutil.chown(folder, _USER, _USER)
        with _server_in(Path(folder) / "data", where) as url:
            yield url


@contextmanager
def _server_in(data: Path, where: Path) -> Iterator[str]:
    port = free_port()
    options = f"-p {port} -k '' -c listen_addresses=127.0.0.1 -c max_connections=200"
    options += " -c dynamic_shared_memory_type=mmap"  # nothing of it in /dev/shm
    _run(where / "initdb", "-D", data, "-A", "trust", "-U", "autotune", "--no-locale", "-E", "UTF8")
    _run(where / "pg_ctl", "-D", data, "-w", "-o", options, "-l", data / "log", "start")
    try:
        yield f"postgresql://autotune@127.0.0.1:{port}"
    finally:
        _run(where / "pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")


def create_database(server: str, name: str) -> str:
    """The URL of a new, empty database."""
    import psycopg

    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return f"{server}/{name}"


def free_port() -> int:
    """A port of this machine that nobody uses."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _run(program: Path, *arguments: str | Path) -> None:
    """One of the server's programs, as a user that it accepts."""
    user = _USER if os.getuid() == 0 and _has(_USER) else None
    done = subprocess.run(
        [program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
        user=user,
        group=user,
        extra_groups=[] if user else None,
        cwd="/",
        env={name: value for name, value in os.environ.items() if name != MARK},
        timeout=60,
    )
    assert done.returncode == 0, f"{program.name}: {done.stdout}"


def _has(user: str) -> bool:
    return user in {entry.pw_name for entry in pwd.getpwall()}
