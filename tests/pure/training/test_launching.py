"""What a training tells of its device and its rate: launches, failures, learning rates."""

import json
import sys
from statistics import median
from types import SimpleNamespace

import pytest
import torch

from autotune.configuration.training_config import TrainingConfig, lr_factor
from autotune.training.batches import Batches
from autotune.training.failures import classify
from autotune.training.profiling import busy_seconds, single_laps
from autotune.training.timing import Timer, drive
from autotune.training.training_setup import apply, build_dataset, scale_learning_rates
from autotune.training.workload import load_workload
from autotune.values.outcome import OutOfMemory, Rejected, UserError
from children import WORKLOADS, completed, succeeded


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


def launch_seconds(gpu, step):
    timer = Timer(Batches((), gpu.clock, gpu.wait))
    return median(lap.launched_seconds for lap in drive(single_laps(timer), step))


@pytest.mark.parametrize("kernels", [10, 600, 900])
def test_launching_is_not_waiting_for_room_in_the_queue(kernels):
    gpu = Gpu(kernels, launch=1e-5, runs=5e-5)
    assert launch_seconds(gpu, gpu.step) == pytest.approx(kernels * 1e-5)


def test_one_step_that_stalls_does_not_count():
    gpu = Gpu(100, launch=1e-5, runs=5e-5)
    gpu.now = 0.0
    steps = iter(range(100))

    def step():
        gpu.now += 1.0 if next(steps) == 0 else 0.0
        gpu.step()

    assert launch_seconds(gpu, step) == pytest.approx(1e-3)


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


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
        "GET was unable to find an engine to execute this computation",
        "FIND was unable to find an engine to execute this computation",
        "Unable to find a valid cuDNN algorithm to run convolution",
    ],
)
def test_a_library_that_gets_no_memory_says_so_in_other_words(text):
    found = classify(RuntimeError(text), None, 1000)
    assert found == OutOfMemory("device", f"{text} (usually a lack of memory)", 1000)


def test_a_kernel_that_is_too_large_for_the_device_is_the_configurations_fault():
    text = "out of resource: shared memory, Required: 262144, Hardware limit: 232448."
    found = classify(RuntimeError(text), None, None)
    assert found == Rejected(f"torch.compile failed: {text}")


def test_other_errors_of_the_device_stay_the_users():
    found = classify(RuntimeError("CUDA error: device-side assert triggered"), None, None)
    assert isinstance(found, UserError)


@pytest.mark.parametrize(
    ("rule", "batch_size", "factor"),
    [
        *(("none", 512, 1.0), ("linear", 64, 1.0), ("linear", 256, 4.0), ("linear", 32, 0.5)),
        ("linear", 4096, 8.0),  # 64 times the batch is beyond where the linear rule holds
        ("sqrt", 256, 2.0),
        ("sqrt", 4096, 8.0),
        ("sqrt", 16, 0.5),
    ],
)
def test_the_factor_follows_the_batch_size(rule, batch_size, factor):
    assert lr_factor(rule, batch_size, 64) == pytest.approx(factor)


@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_every_group_of_the_optimizer_gets_the_factor(factor):
    workload = load_workload(WORKLOADS / "two_rates.py")
    config = TrainingConfig.of({"batch_size": 8})
    setup = apply(config, workload, "cpu", 0, build_dataset(workload))
    scale_learning_rates(setup.optimizer, factor)
    rates = [float(group["lr"]) for group in setup.optimizer.param_groups]
    assert rates == pytest.approx([0.25 * factor, 0.125 * factor])


def test_a_rate_that_is_a_tensor_shared_by_groups_is_scaled_once():
    rate = torch.tensor(0.5)
    weights = [torch.zeros(1, requires_grad=True) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": w} for w in weights], lr=rate)
    scale_learning_rates(optimizer, 2.0)
    assert [float(group["lr"]) for group in optimizer.param_groups] == [1.0, 1.0]
    assert float(rate) == 0.5


# A fork for each code, from a process that has imported what all need.
PROGRAM = """
import json, os, sys, tqdm
from autotune.training.before_fork import Traces
for number, code in enumerate(json.load(sys.stdin)):
    if os.fork() == 0:
        traces = Traces()
        exec(code, kept := {})
        print(traces.obstacle("it"), file=open(str(number), "w"), flush=True)
        os._exit(0)
    os.wait()
"""
OBSTACLES = [
    (
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "it left a thread running: ",
    ),
    (
        "import subprocess\nkept = subprocess.Popen(['sleep', '1'], stdout=subprocess.DEVNULL)",
        "it left a child process running: ",
    ),
    ("kept = open('data', 'w')", "it left a file open, whose position forks would share: /"),
    ("import os\nkept = os.pipe()", "it left a file open, whose position forks would share: "),
    (
        "import socket\nkept = socket.socket()",
        "it left a file open, whose position forks would share: socket:",
    ),
    ("import mmap\nkept = mmap.mmap(-1, 4096)", "it made memory that forks would share: "),
    (
        "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)",
        "it changed what happens when a child process ends",
    ),
]
HARMLESS = [
    "import threading\none = threading.Thread(target=print)\none.start()\none.join()",
    "import subprocess\nsubprocess.run(['true'])",
    "with open('data', 'w') as file:\n    file.write('x')",
    # As numpy.memmap keeps it: nobody reads on from a position.
    f"import mmap\nfile = open({sys.executable!r}, 'rb')\n"
    "kept = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)\nfile.close()",
    "kept = open('/dev/urandom', 'rb')",
    "import tqdm\nclass Bar(tqdm.tqdm): ...\nlist(Bar(range(3)))",
    "kept = bytearray(1 << 20)",
]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The reason against forks of a process in which some code was run."""
    codes = [*(code for code, _ in OBSTACLES), *HARMLESS]
    folder = tmp_path_factory.mktemp("codes")
    succeeded(completed(folder, [sys.executable, "-c", PROGRAM], stdin=json.dumps(codes)))
    return {key: (folder / str(number)).read_text().strip() for number, key in enumerate(codes)}


@pytest.mark.parametrize(("code", "reason"), OBSTACLES)
def test_a_resource_that_forks_would_share_or_lack_is_an_obstacle(code, reason, found):
    assert found[code].startswith(reason)


@pytest.mark.parametrize("code", HARMLESS)
def test_a_resource_that_forks_copy_is_no_obstacle(code, found):
    assert found[code] == "None"
