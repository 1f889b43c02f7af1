"""`python -m autotune.process.child.launcher LIFELINE COMMAND...` becomes a launcher of processes.

It ends with its parent and stays on its cores, as does what it starts.
"""

from __future__ import annotations

import os
import signal
import sys

from autotune.process.common.child_ties import hold_lifeline, stay_on_cores

if __name__ == "__main__":
    lifeline, *command = sys.argv[1:]
    # Killed, it could not give back what it holds of a cluster; its processes are killed anyway.
    hold_lifeline(lifeline, signal.SIGTERM)
    stay_on_cores()
    try:
        os.execvp(command[0], command)  # noqa: S606 - no shell is meant
    except OSError as error:
        sys.exit(f"{command[0]} cannot be started: {error.strerror}")
