"""Launchers of several processes: torch's, or one of the user's.

With the arguments `torch PROCESSES FOLDER LIFELINE START` this program is `python -m
torch.distributed.run --standalone --nproc-per-node PROCESSES`, which starts `main` beside this file
as each rank. It writes the exit codes of processes that failed to `ended.json`, because their order
is known only to it. With `own LIFELINE COMMAND...` it becomes a launcher of the user's. Both end
with their parent and stay on its cores, as does what they start.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from autotune.process.common.child_ties import hold_lifeline, stay_on_cores
from autotune.process.common.trial_folder import TrialFolder, write_atomically


def torch_s(processes: str, place: str, lifeline: str, start: str) -> None:
    """Start the ranks, and wait until all of them have ended.

    Raises:
        ChildFailedError: a rank failed; the others were ended.
    """
    hold_lifeline(lifeline)
    stay_on_cores()
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    folder = TrialFolder(Path(place))
    options = ["--standalone", "--nproc-per-node", processes]
    options += ["--log-dir", str(folder.launcher_logs)]
    try:
        run.main([*options, "-m", "autotune.process.child.main", place, lifeline, start])
    except ChildFailedError as error:
        codes = {str(rank): failure.exitcode for rank, failure in error.failures.items()}
        write_atomically(folder.ended, json.dumps(codes))
        raise


def own(lifeline: str, *command: str) -> NoReturn:
    """Replace this process by the command, which holds the lifeline as well.

    When the parent has ended, the launcher is asked to end: killed, it could not end its processes
    on other hosts, nor give back what it holds of a cluster. Those on this host are killed anyway.
    """
    hold_lifeline(lifeline, signal.SIGTERM)
    stay_on_cores()
    try:
        os.execvp(command[0], command)  # noqa: S606 - no shell is meant
    except OSError as error:
        sys.exit(f"{command[0]} cannot be started: {error.strerror}")


if __name__ == "__main__":
    kind, *words = sys.argv[1:]
    torch_s(*words) if kind == "torch" else own(*words)
