"""New interpreters of tests, forked from a process that has imported torch already.

Importing torch and this package takes four seconds of a core, and hundreds of tests start processes
that need both. Where this module was asked to `begin`, `subprocess.Popen` puts such a program to
`fork_server`, which is started with the first one. There it has its own environment, folder,
session and open files, as in a new interpreter. All other programs are started as ever, and so
is one that the server refuses. A test with the mark `fresh` has new interpreters alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PLACE = "AUTOTUNE_TESTS_SERVERS"
"""Variable with the folder of the servers' sockets."""
TRAINING, COMMANDS = "training", "commands"
_TESTS = Path(__file__).parent
_STARTED = subprocess.Popen
_MOST_BYTES = 1 << 20
_SCRIPTS = {str(_TESTS / "hurried_command.py")}


def begin(folder: Path) -> None:
    """Fork from now on; the servers get this process's environment, and end with it."""
    folder.mkdir()
    (folder / "environ.json").write_text(json.dumps(dict(os.environ)), encoding="utf-8")
    (folder / "owner").write_text(str(os.getpid()), encoding="utf-8")
    os.environ[PLACE] = str(folder)
    install()


def install() -> None:
    """Let all of this process start programs as here."""
    subprocess.Popen = Popen


def words_of(command: Sequence[Any]) -> list[str] | None:
    """Return what follows Python in a command of this interpreter; None for another program."""
    python, *words = map(os.fsdecode, command)
    return [word for word in words if word != "-u"] if python == sys.executable else None


def server_for(words: Sequence[str]) -> str | None:
    """Return the server that forks this program; None if none does."""
    match words:
        case ["-m", "autotune", "run", *_]:
            return TRAINING
        case ["-m", "autotune", *_]:
            return COMMANDS
        case ["-m", "autotune.process.child.launcher", _, program, *_] if program != sys.executable:
            return None
        case ["-m", name, *_] if name.startswith("autotune.process.child."):
            return TRAINING
        case [script, *_] if script in _SCRIPTS:
            return COMMANDS
    return None


class Popen(_STARTED):
    """A program that was started, or forked by a server, which then tells how it ended."""

    _server: _Forked | None = None

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, *rest: Any) -> None:
        asked = _Start(args, *rest)
        if executable is None and preexec_fn is None and asked.kind is not None:
            sys.audit("subprocess.Popen", asked.words[0], args, asked.cwd, asked.env)
            self._server = asked.put()
        if self._server is None:
            super()._execute_child(args, executable, preexec_fn, *rest)
            return
        self.pid = self._server.pid
        self._child_created = True
        self._close_pipe_fds(*asked.pipes)

    def _internal_poll(self, *arguments: Any, **options: Any) -> int | None:
        if self._server is None:
            return super()._internal_poll(*arguments, **options)
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self._handle_exitstatus(status)
        return self.returncode

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._server is None:
            return super()._try_wait(wait_flags)
        # The process ends first, and then the server tells how.
        if wait_flags & os.WNOHANG and not self._server.has_ended():
            return 0, 0
        return self.pid, self._server.status()

    def __del__(self, *arguments: Any, **options: Any) -> None:
        super().__del__(*arguments, **options)
        if self._server is not None:
            self._server.close()


class _Forked:
    """A process that a server has forked."""

    def __init__(self, pid: int, server: int) -> None:
        self.pid = pid
        self._server = server
        self._process = os.pidfd_open(pid)

    def has_ended(self) -> bool:
        return bool(select.select([self._process, self._server], [], [], 0)[0])

    def status(self) -> int:
        """Wait for its end; return its status as the kernel has it."""
        told = os.read(self._server, _MOST_BYTES)
        self.close()
        return json.loads(told)["status"] if told else signal.SIGKILL

    def close(self) -> None:
        for file in (self._server, self._process):
            if file >= 0:
                os.close(file)
        self._server = self._process = -1


class _Start:
    """A program to start, as `Popen` was asked to."""

    def __init__(self, args: Any, close_fds: bool, pass_fds: Any, cwd: Any, env: Any, *rest: Any):
        _, _, shell, *pipes, _, gid, gids, uid, umask, self.session, group = rest
        plain = close_fds and not shell and group == -1 and umask < 0
        plain = plain and gid is gids is uid is None and isinstance(args, (list, tuple))
        self.words = (words_of(args) or []) if plain else []
        self.cwd = os.fsdecode(cwd or Path.cwd())
        self.env = dict(os.environ if env is None else env)
        self.pass_fds = tuple(pass_fds)
        self.pipes = pipes
        self.kind = server_for(self.words) if self.words and PLACE in self.env else None
        if any(os.isatty(number) for number in self._files().values()):
            self.kind = None

    def _files(self) -> dict[int, int]:
        """Return the number that each open file is to have, and the one that it has."""
        stdin, _, _, stdout, _, stderr = self.pipes
        given = {0: stdin, 1: stdout, 2: stderr}
        own = {number: number if file == -1 else file for number, file in given.items()}
        return {**own, **{number: number for number in self.pass_fds}}

    def put(self) -> _Forked | None:
        """Put the program to its server; return its process, or None if that refuses."""
        files = self._files()
        environ = {os.fsdecode(name): os.fsdecode(value) for name, value in self.env.items()}
        request = {
            "words": self.words,
            "cwd": self.cwd,
            "environ": environ,
            "session": bool(self.session),
            "files": list(files),
        }
        with connected(Path(environ[PLACE]), str(self.kind)) as server:
            socket.send_fds(server, [json.dumps(request).encode()], list(files.values()))
            told = json.loads(server.recv(_MOST_BYTES) or "{}")
            return _Forked(told["pid"], server.detach()) if "pid" in told else None


def connected(folder: Path, kind: str) -> socket.socket:
    """Return a connection to a server, which is started if it does not run."""
    with (folder / f"{kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = folder / f"{kind}.sock"
        if not path.exists():
            environ = json.loads((folder / "environ.json").read_text(encoding="utf-8"))
            command = [sys.executable, str(_TESTS / "fork_server.py"), str(path), "-" * 8192]
            # Room for the environments of forks, which are seen in /proc.
            room = {PLACE: str(folder), "_ROOM": "-" * 100_000}
            # Its log is a file, because the pipe of who starts it would stay open with it.
            said = folder / f"{kind}.log"
            with (
                said.open("wb") as log,
                _STARTED(
                    command,
                    env={**environ, **room},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    start_new_session=True,
                ) as starting,
            ):
                assert starting.wait() == 0, f"no {kind} server: {said.read_text()}"
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.connect(str(path))
    return server
