"""A launcher of the user's: `python -m autotune.child.become_launcher LIFELINE COMMAND...`.

This process ends with its parent, stays on its cores, and becomes the launcher: all that holds for
the launcher, too.
"""

from __future__ import annotations

import os
import signal
import sys

from autotune.system.child_ties import hold_lifeline, stay_on_cores


def main() -> None:
    """Replace this process by the command, which keeps the lifeline open.

    When the parent has ended, the launcher is asked to end: killed, it could not end its processes
    on other hosts, nor give back what it holds of a cluster. Those on this host are killed anyway.
    """
    lifeline, *command = sys.argv[1:]
    hold_lifeline(int(lifeline), signal.SIGTERM)
    stay_on_cores()
    os.set_inheritable(int(lifeline), True)
    try:
        os.execvp(command[0], command)  # noqa: S606 - no shell is meant
    except OSError as error:
        sys.exit(f"{command[0]} cannot be started: {error.strerror}")


if __name__ == "__main__":
    main()
