"""A child keeps to the cores that its device is made of."""

import os

import pytest

from autotune.context.inspection import inspection
from autotune.process.devices import Device
from autotune.process.runner import SubprocessRunner
from autotune.values.outcome import Inspected


@pytest.mark.fresh
@pytest.mark.slow
@pytest.mark.usefixtures("threads_of_the_machine")
@pytest.mark.parametrize("warm", [True, False])
def test_a_child_uses_no_other_cores(warm, tmp_path):
    before = len(os.sched_getaffinity(0))
    core = max(os.sched_getaffinity(0))
    device = Device(f"cpu:{core}", (core,))
    with SubprocessRunner(tmp_path / "inductor", warm, device.environ) as runner:
        found = runner.run(inspection("cpu", None), tmp_path / "trial")
    assert isinstance(found, Inspected)
    assert found.machine.host.affinity_count == 1
    assert found.machine.default_num_threads == 1
    assert len(os.sched_getaffinity(0)) == before, "this process keeps its own"
