"""A clock for a whole process that moves only when it is told to."""

import subprocess
import time
from types import SimpleNamespace

_START = 1000.0


class Clock:
    """Seconds that pass by being told to."""

    def __init__(self) -> None:
        self.now = _START

    def restart(self) -> None:
        """Begin again, so that sums of seconds are rounded as they were before."""
        self.now = _START

    def read(self) -> float:
        """Return the seconds since some moment, as `time.monotonic` does."""
        return self.now

    def wait(self, seconds: float) -> None:
        """Let some seconds pass at once."""
        self.now += seconds


CLOCK = Clock()


def install() -> None:
    """Put the clock in the place of the process's own.

    Call it before autotune is imported: some of its classes keep `time.monotonic` itself. Waiting
    for a process, such as git, takes real time: it would pass its deadline at once.
    """
    subprocess._time = time.monotonic
    subprocess.time = SimpleNamespace(sleep=time.sleep)
    time.monotonic, time.sleep = CLOCK.read, CLOCK.wait
