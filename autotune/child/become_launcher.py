"""A launcher of the user's: `python -m autotune.child.become_launcher LIFELINE COMMAND...`.

This process ends with its parent, stays on its cores, and becomes the launcher: all that holds for
the launcher, too.
"""

from __future__ import annotations

import os
import sys

from autotune.system.child_ties import hold_lifeline, stay_on_cores


def main() -> None:
    """Replace this process by the command, which keeps the lifeline open."""
    lifeline, *command = sys.argv[1:]
    hold_lifeline(int(lifeline))
    stay_on_cores()
    os.set_inheritable(int(lifeline), True)
    try:
        os.execvp(command[0], command)  # noqa: S606 - no shell is meant
    except OSError as error:
        sys.exit(f"{command[0]} cannot be started: {error.strerror}")


if __name__ == "__main__":
    main()
