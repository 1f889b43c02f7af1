"""A server of `forking`: `python fork_server.py SOCKET ROOM`, where SOCKET is KIND.sock.

It imports what programs of its kind import, and forks a process for each request. A fork sets up
what Python would have found at its start, and becomes the program. The server ends with the process
for which it was started.
"""

import atexit
import ctypes
import gc
import importlib
import io
import json
import os
import re
import runpy
import select
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

_MOST_BYTES = 1 << 20
_IMPORTED = {
    "training": (
        *("torch._dynamo", "torch.distributed.run", "autotune.cli"),
        *("autotune.training.inspection", "autotune.process.child.warm_host"),
        *("autotune.training.arithmetic", "autotune.numerics.numerics_check"),
        *("autotune.scripting.interpose", "autotune.scripting.trial", "autotune.training.tasks"),
    ),
    "commands": (
        *("optuna", "autotune.cli", "autotune.commands.compare", "autotune.commands.search"),
        *("autotune.report.data", "autotune.searching.search", "autotune.searching.trials.workers"),
        "autotune.study.study",
    ),
}
# Variables that are read when they are used, not while something is imported.
_LATE = re.compile(
    "AUTOTUNE_(?!CORES).*|PYTEST_.*|TMPDIR|TORCHINDUCTOR_CACHE_DIR|COLUMNS|LINES|TERM|NO_COLOR|HOME|XDG_.*|PATH"
    "|(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE|NAME)|MASTER_(ADDR|PORT)|TORCHELASTIC_.*|OLDPWD|PWD"
    "|TORCH_ELASTIC_SHUTDOWN_TIMEOUT|TORCH_NCCL_ASYNC_ERROR_HANDLING|PGPASSWORD|_ROOM|_"
)
# Variables that Python or the linker reads at the start of a process.
_EARLY = re.compile("PYTHON.*|LD_.*|LC_.*|LANG|LANGUAGE")


class Become(BaseException):
    """A fork was to replace itself by another program, which it can be as well."""


def main() -> None:
    """Import, go into the background, and fork until the owner ends; then be what a fork is."""
    path = Path(sys.argv[1])
    kind, owner = path.stem, int((path.parent / "owner").read_text(encoding="utf-8"))
    import forking

    forking.install()
    for name in _IMPORTED[kind]:
        importlib.import_module(name)
    base = dict(os.environ)
    gc.freeze()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(str(path))
    listening.listen(64)
    if os.fork():
        os._exit(0)
    request = _Server(kind, base, listening, owner).forked()
    _leave(_code_of(lambda: _be(request, kind, base)))


def _code_of(program: Callable[[], None]) -> int:
    """Run a program; return the exit code that Python would have."""
    try:
        program()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return 0 if end.code is None else end.code if isinstance(end.code, int) else 1
    except KeyboardInterrupt:
        raise
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _leave(code: int) -> NoReturn:
    """End as Python does, but without taking its modules apart, which costs a fork much memory."""
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)


class _Server:
    """The loop of the server."""

    def __init__(self, kind: str, base: dict[str, str], listening: socket.socket, owner: int):
        self._kind, self._base, self._listening = kind, base, listening
        self._owner = os.pidfd_open(owner)
        self._ends: dict[int, tuple[int, socket.socket]] = {}

    def forked(self) -> dict[str, Any]:
        """Return a request, in the fork that is for it."""
        poll = select.poll()
        poll.register(self._listening, select.POLLIN)
        poll.register(self._owner, select.POLLIN)
        while True:
            for ready, _ in poll.poll():
                if ready == self._owner:
                    os._exit(0)
                if ready != self._listening.fileno():
                    poll.unregister(ready)
                    self._tell_end(ready)
                    continue
                connection, _ = self._listening.accept()
                text, files, _, _ = socket.recv_fds(connection, _MOST_BYTES, 64)
                request = json.loads(text)
                if (pid := self._fork(request)) == 0:
                    self._forget()
                    _set_files(request["files"], files, connection)
                    return request
                for file in files:
                    os.close(file)
                if pid is None:
                    connection.send(b"{}")
                    connection.close()
                    continue
                end = os.pidfd_open(pid)
                self._ends[end] = pid, connection
                poll.register(end, select.POLLIN)

    def _fork(self, request: dict[str, Any]) -> int | None:
        """Return the number of a new process, 0 in that process; None if it may not be a fork."""
        if not is_fit(self._kind, self._base, request["environ"], request["words"]):
            return None
        pid = os.fork()
        if pid == 0 and request["session"]:
            os.setsid()
        return pid

    def _tell_end(self, end: int) -> None:
        pid, connection = self._ends.pop(end)
        os.close(end)
        _, status = os.waitpid(pid, 0)
        with suppress(OSError):  # whoever asked may be gone
            connection.send(json.dumps({"status": status}).encode())
        connection.close()

    def _forget(self) -> None:
        """Forget what is the server's own; the numbers of its files will be others'."""
        self._listening.close()
        os.close(self._owner)
        for end, (_, connection) in self._ends.items():
            os.close(end)
            connection.close()
        self._ends.clear()


def _set_files(numbers: Sequence[int], files: Sequence[int], connection: socket.socket) -> None:
    """Give open files their numbers; nothing else stays open. Then tell the process's number."""
    import fcntl

    above = 500
    moved = [fcntl.fcntl(file, fcntl.F_DUPFD, above) for file in files]
    told = fcntl.fcntl(connection.detach(), fcntl.F_DUPFD, above)
    os.closerange(0, above)
    for number, file in zip(numbers, moved, strict=True):
        os.dup2(file, number)
        os.close(file)
    os.write(told, json.dumps({"pid": os.getpid()}).encode())
    os.close(told)


def is_fit(kind: str, base: dict[str, str], environ: dict[str, str], words: Sequence[str]) -> bool:
    """Return True if a program finds in a fork what it would find in a new interpreter."""
    differs = {name for name, value in (base.items() ^ environ.items())}
    if kind == "commands":
        return not any(_EARLY.fullmatch(name) for name in differs)
    if not all(_LATE.fullmatch(name) for name in differs):
        return False
    match words:
        case ["-m", "autotune.process.child.main", folder, *_] | [
            "-m",
            "autotune.process.child.launcher",
            *_,
            folder,
            _,
            _,
        ]:
            job = json.loads((Path(folder) / "job.json").read_bytes())
            file = job["model_path"] and Path(job["model_path"])
            return not file or (_may_have_torch(file) if job["script"] else _is_alone(file))
        case ["-P", "-c", _, _, *script]:
            return script[0] != "-m" and _may_have_torch(Path(script[0]))
    return True


def _may_have_torch(file: Path) -> bool:
    """Return True if a file does the same where torch was imported before it began."""
    from autotune.process.child.warm_host import sets_variables_before_torch

    if not file.exists() or "torch" not in file.read_text(encoding="utf-8", errors="replace"):
        return False
    return not sets_variables_before_torch(file) and _is_alone(file)


def _is_alone(file: Path) -> bool:
    """Return True if no module beside a file has the name of one that the server has imported."""
    from autotune.process.child.warm_host import shadowed

    return not shadowed(file.absolute())


def _be(request: dict[str, Any], kind: str, base: dict[str, str]) -> None:
    """Set up what Python finds at its start, and run the program."""
    words, environ = request["words"], request["environ"]
    os.chdir(request["cwd"])
    own = sys.path[1:]
    if kind == "training" and words[:3] == ["-m", "autotune", "run"]:
        _become_within(base)
    if words[:2] == ["-m", "autotune.process.child.launcher"]:
        os.execvp = _become_launcher
    while True:
        _set_environment(words, environ)
        first = str(Path(words[0]).parent) if words[0].endswith(".py") else request["cwd"]
        sys.path[:] = own if words[0] == "-P" else [first, *own]
        try:
            _run(words)
        except Become as other:
            words, environ = other.args
        else:
            return


def _become_launcher(_: str, argv: list[str]) -> NoReturn:
    """Let this process be torch's launcher, which would replace it."""
    raise Become(argv[1:], dict(os.environ))


def _become_within(base: dict[str, str]) -> None:
    """Let this process be the program that would replace it, where a fork can be that."""
    execve = os.execve

    def replaced(path: str, argv: list[str], environ: dict[str, str]) -> NoReturn:
        words = argv[1:]
        is_ours = path == sys.executable and words[:2] == ["-P", "-c"]
        if is_ours and is_fit("training", base, environ, words):
            os.execve = execve
            raise Become(words, environ)
        execve(path, argv, environ)

    os.execve = replaced


def _set_environment(words: Sequence[str], environ: dict[str, str]) -> None:
    """Set the environment, also where /proc shows it, and the standard files."""
    os.environ.clear()
    os.environ.update(environ)
    tempfile.tempdir = None
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _show([sys.executable, *words], [f"{name}={value}" for name, value in environ.items()])
    sys.stdin = io.TextIOWrapper(open(0, "rb", closefd=False), encoding="utf-8")  # noqa: SIM115
    for name, number, errors in (("stdout", 1, "strict"), ("stderr", 2, "backslashreplace")):
        raw = open(number, "wb", closefd=False)  # noqa: SIM115
        stream = io.TextIOWrapper(raw, "utf-8", errors, line_buffering=number == 2)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def _show(arguments: Sequence[str], variables: Sequence[str]) -> None:
    """Write this process's arguments and environment to where the kernel finds them."""
    fields = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    places = (fields[45:47], arguments), (fields[47:49], variables)
    for (start, end), texts in places:
        begin, room = int(start), int(end) - int(start)
        data = b"\0".join(map(os.fsencode, texts))[: room - 1]
        ctypes.memset(begin, 0, room)
        ctypes.memmove(begin, data, len(data))


def _run(words: Sequence[str]) -> None:
    sys.modules["__main__"] = ModuleType("__main__")
    sys.orig_argv[:] = [sys.executable, *words]
    match words:
        case ["-m", name, *arguments]:
            sys.argv[:] = ["-m", *arguments]
            runpy._run_module_as_main(name)
        case ["-P", "-c", code, *arguments]:
            sys.argv[:] = ["-c", *arguments]
            exec(code, sys.modules["__main__"].__dict__)
        case [script, *arguments]:
            sys.argv[:] = [script, *arguments]
            runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
