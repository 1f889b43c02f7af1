"""The seconds of launching a step and of its kernels follow from what a fake device says."""

from types import SimpleNamespace

import pytest

from autotune.training.profiling import busy_seconds, launch_seconds


class Gpu:
    """A device with a queue: launching waits where it is full, and its kernels run in order."""

    def __init__(self, kernels, launch, runs, room=1000):
        self.kernels, self.launch, self.runs, self.room = kernels, launch, runs, room
        self.now = 0.0
        self.ends: list[float] = []

    def clock(self):
        return self.now

    def step(self):
        for _ in range(self.kernels):
            if len(self.ends) >= self.room:
                self.now = max(self.now, self.ends[-self.room])
            self.now += self.launch
            begins = max(self.now, self.ends[-1] if self.ends else 0.0)
            self.ends.append(begins + self.runs)

    def wait(self):
        self.now = max(self.now, self.ends[-1] if self.ends else 0.0)


@pytest.mark.parametrize("kernels", [10, 600, 900])
def test_launching_is_not_waiting_for_room_in_the_queue(kernels):
    gpu = Gpu(kernels, launch=1e-5, runs=5e-5)
    assert launch_seconds(gpu.step, gpu.wait, gpu.clock) == pytest.approx(kernels * 1e-5)


def test_one_step_that_stalls_does_not_count():
    gpu = Gpu(100, launch=1e-5, runs=5e-5)
    gpu.now = 0.0
    steps = iter(range(100))

    def step():
        gpu.now += 1.0 if next(steps) == 0 else 0.0
        gpu.step()

    assert launch_seconds(step, gpu.wait, gpu.clock) == pytest.approx(1e-3)


def event(start, end, device="CUDA", note=False):
    """An event of the profiler, in microseconds."""
    return SimpleNamespace(
        key="kernel",
        time_range=SimpleNamespace(start=start, end=end),
        device_type=SimpleNamespace(name=device),
        is_user_annotation=note,
    )


def test_kernels_that_overlap_are_busy_once():
    events = [event(0, 100), event(50, 150), event(60, 70), event(300, 400)]
    others = [event(0, 9999, "CPU"), event(0, 9999, note=True)]
    assert busy_seconds([*events, *others], steps=2) == pytest.approx(250e-6 / 2)


def test_a_profiler_that_sees_no_kernel_tells_nothing():
    assert busy_seconds([event(0, 9, "CPU")], steps=1) is None
