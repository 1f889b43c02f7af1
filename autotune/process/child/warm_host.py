"""The warm host, a process that imports torch once and then forks a child for each job.

Its arguments are a socket's descriptor and the place of a lifeline. A fork saves the seconds that
importing torch takes. The host imports the packages that the workload needs and runs no operation.
On request it also imports the workload and builds its dataset for all forks. It refuses to fork
where that would not be safe; the runner then starts an interpreter.
"""

from __future__ import annotations

import ast
import faulthandler
import importlib
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from autotune.configuration import job as jobs
from autotune.knobs.torch_private import IMPORTED_BY_OPTIM
from autotune.process.child.main import STACKS_AT, failed, leave, print_to, work
from autotune.process.common.child_ties import hold_lifeline, receive, send, stay_on_cores
from autotune.process.common.imports import is_installed
from autotune.process.common.trial_folder import TrialFolder, read_some
from autotune.scripting.surroundings import TRACKERS
from autotune.values import outcome as outcomes

if TYPE_CHECKING:
    from autotune.training.before_fork import Prepared

# Every training imports torch.optim, and with it torch._dynamo, which takes a second. Our own
# modules would take some hundredths of one in each trial, as would what reads and writes its files.
_ALWAYS = (
    IMPORTED_BY_OPTIM,
    "autotune.numerics.numerics_check",
    "autotune.scripting.trial",
    "autotune.training.arithmetic",
)
_OURS = str(__package__).partition(".")[0]
_READS = ("get", "copy", "items", "keys", "values")
_Import = tuple[int, str, list[str]]
_Outer = tuple[Path, str, list[str]]


def main() -> None:
    """Answer requests until the runner closes its end of the socket."""
    end = socket.socket(fileno=int(sys.argv[1]))
    lifeline = sys.argv[2]
    hold_lifeline(lifeline)
    stay_on_cores()
    for name in _ALWAYS:
        importlib.import_module(name)
    jobs.adapter()
    outcomes.adapter()
    prepared: Prepared | None = None
    while True:
        request = receive(end)
        if request is None:
            return
        if "build" in request:
            prepared = _build(end, TrialFolder(Path(request["build"])))
        else:
            _answer(end, request, prepared, lifeline)


def _build(end: socket.socket, folder: TrialFolder) -> Prepared | None:
    """Import a job's workload and build its dataset here, or send why forks could not use it.

    Output goes to the job's logs. An error becomes the job's outcome and ends this process.
    """
    from autotune.training.before_fork import fork_obstacle, prepare_for_forks

    job = jobs.job_from_json(read_some(folder.job))
    assert job.model_path is not None
    if obstacle := _prepare(job.model_path, sets_environment=False) or fork_obstacle():
        send(end, {"unchanged": obstacle})
        return None
    send(end, {"begins": job.model_path})
    print_to(folder)
    faulthandler.enable()
    phase = partial(_phase, folder, STACKS_AT * job.deadline_seconds)
    try:
        found = prepare_for_forks(Path(job.model_path), phase, job.config)
    # The user's code may raise anything, SystemExit and KeyboardInterrupt included.
    except BaseException as error:
        leave(folder, failed(job, error))
    _print_nowhere()
    if isinstance(found, str):
        send(end, {"obstacle": found})
        return None
    send(end, {"built": job.model_path})
    return found


@contextmanager
def _phase(folder: TrialFolder, seconds: float, name: str) -> Iterator[None]:
    """Record the phase, and print the stacks of all threads if it takes longer than `seconds`."""
    folder.enter_phase(name)
    faulthandler.dump_traceback_later(seconds)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()  # a thread, which a fork would not have


def _answer(
    end: socket.socket, request: dict[str, Any], prepared: Prepared | None, lifeline: str
) -> None:
    """Fork a child for the request and wait for it, or send why that is refused."""
    from autotune.training import memory
    from autotune.training.before_fork import fork_obstacle

    obstacle = None
    if prepared is None:
        obstacle = _prepare(request["model_path"], request["sets_environment"]) or fork_obstacle()
    if obstacle:
        send(end, {"refused": obstacle})
        return
    held = memory.file_bytes()
    child = os.fork()
    if child == 0:
        memory.count_host(held)
        _become_child(end, request, prepared, lifeline)
    _, status = os.waitpid(child, 0)
    send(end, {"exit_code": os.waitstatus_to_exitcode(status)})


def _prepare(model_path: str | None, sets_environment: bool) -> str | None:
    """Import the packages that the workload needs, or return why a fork could not use them.

    `sets_environment` is True for a script, which imports torch after it has set variables.
    """
    if model_path is None:
        return None
    script = Path(model_path)
    if sets_environment and sets_variables_before_torch(script):
        return "the script may set its environment before it imports torch"
    preload(script)
    taken = shadowed(script)
    return f"{taken[0]} is the name of another module, too" if taken else None


def _become_child(
    end: socket.socket, request: dict[str, Any], prepared: Prepared | None, lifeline: str
) -> NoReturn:
    """Run the job as a newly started child would, with a session and logs of its own."""
    try:
        os.setsid()
        hold_lifeline(lifeline)
        folder = TrialFolder(Path(request["folder"]))
        print_to(folder, keep=request["keep_logs"])
        send(end, {"pid": os.getpid()})
        end.close()
        if prepared is None and (numpy := sys.modules.get("numpy")) is not None:
            numpy.random.seed()  # it is equal in all forks; Python reseeds its own generator
        work(folder, request["start"], prepared)
    finally:
        os._exit(1)


def _print_nowhere() -> None:
    """Redirect stdout and stderr to /dev/null, so that later forks do not print to these logs."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # the user's code may have closed or replaced it
            stream.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


class _SetsVariables(Exception):  # noqa: N818 - it ends a walk
    """A file of the user's own may set environment variables."""


@cache
def preload(model_path: Path) -> None:
    """Import what the file imports from installed packages; errors are left to the trial.

    The same goes for imports of the user's own modules, which themselves run only in trials. These
    are modules beside the file, and what Python finds outside of the places for installed packages.
    Experiment trackers are left out, because some read their switches when they are imported.
    Nothing is imported if the file may set environment variables first, nor what follows a module
    of the user's own that may.
    """
    with suppress(_SetsVariables):
        for _, name, attributes in _outer_imports(model_path, model_path, set()):
            _import(name, attributes, model_path)


@cache
def sets_variables_before_torch(script: Path) -> bool:
    """Return True if the script may set variables, or its own modules before torch is imported."""
    try:
        found = _outer_imports(script, script, set())
        any(path == script and name.partition(".")[0] == "torch" for path, name, _ in found)
    except _SetsVariables:
        return True
    return False


def _outer_imports(path: Path, script: Path, seen: set[Path]) -> Iterator[_Outer]:
    """Yield the imports of installed packages that a file makes when it is loaded, in order.

    Each comes with its file: those of the user's own modules that it imports are among them, which
    lie beside `script`. Files that were looked into are added to `seen`.

    Raises:
        _SetsVariables: the next file may set environment variables.
    """
    seen.add(path)
    with suppress(OSError, SyntaxError, ValueError):
        tree = ast.parse(path.read_bytes())
        if sets_environment(tree):
            raise _SetsVariables
        for level, name, attributes in _imports(tree):
            for own in _own_files((level, name, attributes), script, path.parent):
                if own not in seen:
                    yield from _outer_imports(own, script, seen)
            if not level:
                yield path, name, attributes


def _own_files(found: _Import, script: Path, folder: Path) -> Iterator[Path]:
    """Yield the files of the user's own that an import of a file in `folder` may run."""
    level, name, attributes = found
    parts = [part for part in name.split(".") if part]
    if parts[:1] == [_OURS]:
        return
    above = [folder, *folder.parents][level - 1 : level]
    places = above if level else _own_folders(parts[0], script)
    stems = [parts[:length] for length in range(1, len(parts) + 1)]
    stems += [[*parts, attribute] for attribute in attributes]
    for at in (place.joinpath(*stem) for place in places for stem in stems):
        yield from filter(Path.is_file, (at.with_suffix(".py"), at / "__init__.py"))


def _import(name: str, attributes: list[str], model_path: Path) -> None:
    top = name.partition(".")[0]
    folders = [str(folder) for folder in _own_folders(top, model_path)]
    is_own = top not in sys.modules and PathFinder.find_spec(top, folders) is not None
    if top not in TRACKERS and not is_own:
        # A module may raise anything when it is imported, SystemExit included.
        with suppress(BaseException):
            __import__(name, fromlist=attributes)


def shadowed(model_path: Path) -> list[str]:
    """Return the modules beside the workload that it could not import, or not run, itself.

    Their name is taken by another one, or a package that looks for it has found and run the file.
    """
    own = {entry.stem for entry in model_path.parent.iterdir()} - {model_path.stem, _OURS}
    return sorted(n for n in own if getattr(sys.modules.get(n), "__file__", None))


def _imports(tree: ast.Module) -> Iterator[_Import]:
    """Yield the imports that the file makes when it is loaded: level, module, names taken from it.

    The level counts the dots of a relative import.
    """
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop(0)
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                continue
            case ast.Import(names):
                yield from ((0, alias.name, []) for alias in names)
            case ast.ImportFrom(name, names, level):
                yield level or 0, name or "", [one.name for one in names if one.name != "*"]
            case _:
                pending += ast.iter_child_nodes(node)


def _own_folders(name: str, script: Path) -> list[Path]:
    """Return the folders in which a module of the user's own may lie.

    They are the script's, the working directory, and where Python finds the module if that is no
    place for installed packages, as for one that is installed editable.
    """
    folders = [script.parent, Path.cwd()]
    with suppress(Exception):  # a finder may raise anything
        spec = find_spec(name)
        if spec is not None and spec.has_location and not is_installed(Path(str(spec.origin))):
            place = Path(str(spec.origin)).parent
            folders.append(place if spec.submodule_search_locations is None else place.parent)
    return folders


def sets_environment(tree: ast.Module) -> bool:
    """Return True if a parsed file mentions the environment other than to read it."""
    reads = set(_reads_of_environment(tree))
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute | ast.Name))
    return any(
        (node.attr if isinstance(node, ast.Attribute) else node.id)
        in ("environ", "putenv", "unsetenv", "load_dotenv")
        and node not in reads
        for node in nodes
    )


def _reads_of_environment(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes of `environ` in `environ.get(...)`, `environ[...]` and `in environ`."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value, name) if name in _READS:
                yield value
            case ast.Subscript(value, ctx=ast.Load()):
                yield value
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[value]):
                yield value


if __name__ == "__main__":
    main()
