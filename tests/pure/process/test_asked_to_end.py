"""A signal to all processes of a job: the trial was interrupted, it has not failed."""

import threading

import pytest

from autotune.process import stop as stopping
from autotune.process.stop import Stop, StoppableRunner
from autotune.values.outcome import Crashed, Rejected, UserError
from children import WORKLOADS, job_for
from covering import covers

FAILED = UserError("ValueError: signal too short", "model.py:7")


class Ending:
    """A runner whose process ends like this, while the stop may be asked for a moment later."""

    def __init__(self, outcome, stop, seconds):
        self.outcome, self.stop, self.seconds = outcome, stop, seconds

    def run(self, job, folder):
        if self.seconds is not None:
            threading.Timer(self.seconds, self.stop.request).start()
        return self.outcome


def ended(outcome, tmp_path, seconds):
    stop = Stop()
    with stop.trial():
        runner = StoppableRunner(Ending(outcome, stop, seconds), stop)
        return runner.run(job_for(WORKLOADS / "plain.py"), tmp_path)


@covers("R17")
@pytest.mark.parametrize(
    "outcome",
    [
        Crashed("killed by SIGTERM"),
        UserError("KeyboardInterrupt: no message", "model.py:23"),
        Rejected("DataLoader worker (pid 9) is killed by signal: Terminated."),
    ],
)
def test_a_process_that_all_were_signalled_with_was_interrupted(outcome, tmp_path, monkeypatch):
    monkeypatch.setattr(stopping, "_ON_ITS_WAY_SECONDS", 1.0)
    with pytest.raises(KeyboardInterrupt):
        ended(outcome, tmp_path, seconds=0.1)
    monkeypatch.setattr(stopping, "_ON_ITS_WAY_SECONDS", 0.05)
    assert ended(outcome, tmp_path, seconds=None) == outcome, "it alone was ended"


def test_a_failure_while_a_stop_waits_for_the_trial_is_a_failure(tmp_path):
    assert ended(FAILED, tmp_path, seconds=0.0) == FAILED
