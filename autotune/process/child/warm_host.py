"""The warm host, a process that imports torch once and then forks a child for each job.

Its arguments are a socket's descriptor and the place of a lifeline. A fork saves the seconds that a
new interpreter needs to import torch. The host imports the packages that the workload needs and
runs no operation. On request it also imports the workload and builds its dataset, so that forks
find both ready. It refuses to fork where that would not be safe; the runner then starts an
interpreter.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from autotune.configuration.job import job_from_json
from autotune.knobs.torch_private import IMPORTED_BY_OPTIM
from autotune.process.child import preload
from autotune.process.child.main import STACKS_AT, failed, leave, print_to, work
from autotune.process.common.child_ties import hold_lifeline, receive, send, stay_on_cores
from autotune.process.common.trial_folder import TrialFolder
from autotune.values.strict_json import read_some

if TYPE_CHECKING:
    from autotune.training.before_fork import Prepared

# Every training imports these: torch.optim imports torch._dynamo, which takes a second.
_ALWAYS = (IMPORTED_BY_OPTIM, "autotune.training.tasks")


def main() -> None:
    """Answer requests until the runner closes its end of the socket."""
    end = socket.socket(fileno=int(sys.argv[1]))
    lifeline = sys.argv[2]
    hold_lifeline(lifeline)
    stay_on_cores()
    for name in _ALWAYS:
        importlib.import_module(name)
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

    What the code prints goes to the job's logs. If it raises, the error becomes the job's outcome
    and this process ends.
    """
    from autotune.training.before_fork import fork_obstacle, prepare_for_forks

    job = job_from_json(read_some(folder.job))
    assert job.model_path is not None
    if obstacle := _prepare(job.model_path, is_script=False) or fork_obstacle():
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
        obstacle = _prepare(request["model_path"], request["is_script"]) or fork_obstacle()
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


def _prepare(model_path: str | None, is_script: bool) -> str | None:
    """Import the packages that the workload needs, or return why a fork could not use them."""
    if model_path is None:
        return None
    script = Path(model_path)
    if is_script and preload.sets_variables_before_torch(script):
        return "the script may set its environment before it imports torch"
    preload.preload(script)
    shadowed = preload.shadowed(script)
    return f"{shadowed[0]} is the name of another module, too" if shadowed else None


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


if __name__ == "__main__":
    main()
