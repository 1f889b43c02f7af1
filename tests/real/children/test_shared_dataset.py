"""A dataset is built once, in the host that trials are forked from, where forks can use it."""

import shutil
from dataclasses import replace

import pytest

from autotune.configuration.job import CountFlops, Diagnose, Gate, Inspect, Job, Probe
from autotune.process.runner import SubprocessRunner
from autotune.searching.run.time_budget import process_seconds
from autotune.values import outcome as outcomes
from children import QUICK, WORKLOADS, measured, nobody_is_left
from children import shared_job as job_for
from factories import written

MIB = 1 << 20
PLAIN = """
import os, pathlib
from plain import *
import plain
def build_dataset():
    note("builds", os.getpid())
    return plain.build_dataset()
"""
NOTE = """
import pathlib
def note(name, value):
    with pathlib.Path({folder!r}, name).open("a") as file:
        file.write(f"{{value}}\\n")
"""


@pytest.fixture
def own_host(tmp_path):
    """A runner with a host of its own, which finds the environment of the test."""
    with SubprocessRunner(tmp_path / "inductor") as runner:
        yield runner


def workload(folder, body=""):
    """A model.py that borrows from plain.py, notes each build, and then is changed by `body`."""
    shutil.copy(WORKLOADS / "plain.py", folder)
    return written(folder, NOTE.format(folder=str(folder)) + PLAIN + body, "model.py")


def noted(folder, name="builds"):
    """Return what the workload noted so far, a line each."""
    path = folder / name
    return path.read_text().split() if path.exists() else []


def launch_of(folder):
    return (folder / "launch").read_text()


def inspection(model):
    return Job(Inspect(), "cpu", str(model))


def test_all_tasks_of_a_search_share_one_dataset(runner, tmp_path):
    model = workload(tmp_path)
    jobs = [
        (inspection(model), outcomes.Inspected),
        (job_for(model), outcomes.Measured),
        (job_for(model, {"num_workers": 2}), outcomes.Measured),
        (job_for(model, task=Probe(64, (0, 1))), outcomes.Probed),
        (job_for(model, task=CountFlops()), outcomes.CountedFlops),
        (job_for(model, task=Diagnose(QUICK, (0,))), outcomes.Diagnosed),
        (job_for(model, {"optimizer_impl": "fused"}, Gate(job_for(model).config)), outcomes.Gated),
    ]
    for number, (job, kind) in enumerate(jobs):
        assert isinstance(runner.run(job, tmp_path / str(number)), kind)
        assert launch_of(tmp_path / str(number)) == "forked\n"
    assert len(noted(tmp_path)) == 1
    runner.run(job_for(model, host="round 1"), tmp_path / "round")
    assert len(noted(tmp_path)) == 2, "another host builds its own"


LEAVES_A_THREAD = """
import threading
note("imports", os.environ.get("OMP_WAIT_POLICY"))
if os.environ.get("OMP_WAIT_POLICY"):
    threading.Timer(600, print).start()
"""


def test_an_environment_that_forks_cannot_use_leaves_the_plain_host_its_dataset(own_host, tmp_path):
    model, launched = workload(tmp_path, LEAVES_A_THREAD), []
    for number, policy in enumerate((None, "active", None)):
        job = job_for(model, {"env.OMP_WAIT_POLICY": policy})
        assert isinstance(own_host.run(job, tmp_path / str(number)), outcomes.Measured)
        launched.append(launch_of(tmp_path / str(number)))
    assert launched[::2] == ["forked\n"] * 2
    assert "left a thread running" in launched[1]
    assert noted(tmp_path, "imports").count("None") == 1


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    """Trials of one workload, by the name of their folder: two of their own, three that share."""
    folder = tmp_path_factory.mktemp("trials")
    shared = job_for(workload(folder, TOLD))
    own = replace(shared, fresh_data=True)
    jobs = {"own": own, "another": own, "first": shared, "second": shared, "third": shared}
    with SubprocessRunner(folder / "inductor") as runner:
        return folder, {name: runner.run(job, folder / name) for name, job in jobs.items()}


TOLD = """
import sys, time
print("importing")
POINTS = []
def build_dataset():
    note("builds", os.getpid())
    print("building")
    print("careful", file=sys.stderr)
    time.sleep(0.7)
    POINTS.append(plain.build_dataset())
    return POINTS[0]
def build_model():
    print("training")
    note("sums", float(POINTS[0].tensors[0].sum()))
    POINTS[0].tensors[0].zero_()
    return plain.build_model()
"""


def test_a_trial_says_what_it_shares_and_what_production_pays(trials):
    runs = {name: outcome.measurement for name, outcome in trials[1].items()}
    for run in (runs["first"], runs["second"]):
        assert run.shared_seconds >= 0.7
        assert run.build_seconds >= 0.7
        assert process_seconds(run) == pytest.approx(
            run.start_seconds
            + run.build_seconds
            - run.shared_seconds
            + sum(run.warmup_step_seconds)
            + sum(block.seconds for block in run.blocks)
            + sum(run.boundary_seconds)
        )
    assert runs["own"].shared_seconds == 0
    assert runs["own"].build_seconds >= 0.7


def test_each_process_builds_its_own_dataset_where_that_is_asked_for(trials):
    folder, _ = trials
    asked, shared = "forked; dataset built again: --fresh-data\n", "forked\n"
    launches = [launch_of(folder / name) for name in trials[1]]
    assert launches == [asked, asked, shared, shared, shared]
    assert len(set(noted(folder))) == len(noted(folder)) == 3, "one for the three that share"


def test_a_trial_that_damages_its_dataset_does_not_change_the_next_ones(trials):
    sums = noted(trials[0], "sums")
    assert len(sums) == 5
    assert len(set(sums)) == 1


def test_output_of_building_is_in_the_first_trials_logs_alone(trials):
    logs = {name: (trials[0] / name / "stdout.log").read_text() for name in trials[1]}
    assert logs["own"] == logs["first"] == "importing\nbuilding\ntraining\n"
    assert logs["second"] == logs["third"] == "training\n"
    assert "careful" in (trials[0] / "first" / "stderr.log").read_text()


SLOW = """
import time
def build_dataset():
    time.sleep(0.7)
    return plain.build_dataset()
"""


def test_an_inspection_tells_the_same_of_a_workload_that_its_host_built(runner, tmp_path):
    own_settings = "torch.set_num_threads(1)\ntorch.set_default_dtype(torch.float64)\n"
    model = workload(tmp_path, f"import torch\n{own_settings}{SLOW}")
    own = runner.run(replace(inspection(model), fresh_data=True), tmp_path / "own")
    shared = runner.run(inspection(model), tmp_path / "shared")
    assert (shared.is_shared, own.is_shared) == (True, False)
    assert min(shared.dataset_seconds, own.dataset_seconds) >= 0.7
    assert own.workload.baseline["num_threads"] == 1
    assert shared.workload == own.workload
    assert shared.machine == own.machine


def test_a_stream_that_reads_on_from_an_open_file_begins_anew_in_each_trial(runner, tmp_path):
    written(tmp_path, "".join(f"{number}\n" for number in range(4096)), "lines.txt")
    model = workload(tmp_path, STREAM)
    for name in ("first", "second"):
        assert isinstance(runner.run(job_for(model), tmp_path / name), outcomes.Measured)
    assert noted(tmp_path, "starts")[-2:] == ["0", "0"]
    reason = "building the dataset left a file open, whose position forks would share: "
    assert launch_of(tmp_path / "second").startswith(f"forked; dataset built again: {reason}")
    assert len(noted(tmp_path)) == 3, "the host's, in vain, and each trial's own"


STREAM = """
import torch
from torch.utils.data import IterableDataset
class Lines(IterableDataset):
    def __init__(self, path):
        self.file = open(path)
    def __iter__(self):
        note("starts", int(self.file.readline()))
        while True:
            for line in self.file:
                yield torch.full((8,), float(line) / 4096), int(line) % 2
            self.file.seek(0)
def build_dataset():
    note("builds", os.getpid())
    return Lines(pathlib.Path(__file__).parent / "lines.txt")
"""


def test_settings_that_a_dataset_changes_are_found_as_in_a_process_of_its_own(runner, tmp_path):
    change = (
        "def build_dataset():\n    torch.set_num_threads(2)\n    return plain.build_dataset()\n"
    )
    model = workload(tmp_path, "import torch\n" + change)
    outcome = runner.run(job_for(model, {"num_threads": 1}), tmp_path / "trial")
    assert isinstance(outcome, outcomes.NotApplied), outcome
    reason = "building the dataset sets num_threads of the process"
    assert launch_of(tmp_path / "trial") == f"forked; dataset built again: {reason}\n"


@pytest.mark.usefixtures("threads_of_the_machine")
def test_a_dataset_made_by_parallel_operations_leaves_trials_their_threads(own_host, tmp_path):
    model, runner = workload(tmp_path, PARALLEL), own_host
    own = runner.run(replace(inspection(model), fresh_data=True), tmp_path / "own")
    outcome = runner.run(inspection(model), tmp_path / "inspection")
    assert outcome.machine.default_num_threads == own.machine.default_num_threads
    for threads in (1, 2):
        job = job_for(model, {"num_threads": threads}, deadline_seconds=60)
        measured(runner.run(job, tmp_path / str(threads)))
        assert launch_of(tmp_path / str(threads)) == "forked\n"
    assert noted(tmp_path, "told") == [str(own.machine.default_num_threads), "3"] * 2
    assert noted(tmp_path, "threads") == ["3", "3", "1", "2"]


PARALLEL = """
import torch
from torch import get_num_threads, set_num_threads
note("told", get_num_threads())
set_num_threads(3)
def build_dataset():
    note("told", torch.get_num_threads())
    (torch.randn(2000, 2000).exp() @ torch.randn(2000, 2000)).sum()
    return plain.build_dataset()
def build_model():
    note("threads", get_num_threads())
    (torch.randn(1000, 1000).exp() @ torch.randn(1000, 1000)).sum()
    return plain.build_model()
"""


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("raise ValueError('no such corpus')", outcomes.UserError),
        ("raise SystemExit(3)", outcomes.UserError),
        ("import os\n    os._exit(3)", outcomes.Crashed),
        ("import os, signal\n    os.kill(os.getpid(), signal.SIGSEGV)", outcomes.Crashed),
        (
            "import os\n    os.closerange(3, 256)\n    raise ValueError('closed')",
            outcomes.UserError,
        ),
        ("return 7", outcomes.UserError),
    ],
)
def test_a_dataset_that_cannot_be_built_has_the_same_outcome(runner, tmp_path, action, expected):
    model = workload(tmp_path, f"def build_dataset():\n    print('so far')\n    {action}\n")
    first = runner.run(job_for(model), tmp_path / "first")
    assert isinstance(first, expected)
    assert (
        tmp_path / "first" / "stdout.log"
    ).read_text() == "so far\n" or expected is outcomes.Crashed
    assert runner.run(job_for(model), tmp_path / "second") == first
    own = replace(job_for(model), fresh_data=True)
    assert runner.run(own, tmp_path / "own") == first


HANGING = (
    "import time\ndef build_dataset():\n    print('so far', flush=True)\n    time.sleep(600)\n"
)


def test_a_dataset_that_hangs_is_ended_at_the_jobs_deadline(runner, tmp_path):
    runner.run(Job(Inspect(), "cpu"), tmp_path / "warms_the_host")
    model = workload(tmp_path, HANGING)
    outcome = runner.run(job_for(model, deadline_seconds=4), tmp_path / "trial")
    assert outcome == outcomes.TimedOut("build", 4)
    assert (tmp_path / "trial" / "stdout.log").read_text() == "so far\n"
    assert "in build_dataset" in (tmp_path / "trial" / "stderr.log").read_text()


def test_a_person_need_not_wait_for_a_dataset(tmp_path):
    model = workload(tmp_path, HANGING)
    log = tmp_path / "trial" / "stdout.log"

    def has_begun():
        return log.exists() and "so far" in log.read_text()

    with (
        SubprocessRunner(tmp_path / "inductor", is_cancelled=has_begun) as runner,
        pytest.raises(KeyboardInterrupt),
    ):
        runner.run(job_for(model), tmp_path / "trial")
    assert nobody_is_left(tmp_path)


@pytest.mark.parametrize("workers", [0, 1])
def test_the_memory_of_a_trial_counts_the_dataset_once(runner, tmp_path, workers):
    large = (
        "import torch\n"
        "def build_dataset():\n"
        "    points = plain.build_dataset()\n"
        "    points.large = torch.ones(50 * 2**20)\n"
        "    return points\n"
    )
    model = workload(tmp_path, large)
    job = job_for(model, {"num_workers": workers})
    own, shared = (
        runner.run(replace(job, fresh_data=fresh), tmp_path / str(fresh)) for fresh in (True, False)
    )
    peaks = [outcome.measurement.peak_memory_bytes for outcome in (shared, own)]
    assert launch_of(tmp_path / "False") == "forked\n"
    assert min(peaks) > 200 * MIB
    assert peaks[0] == pytest.approx(peaks[1], rel=0.1)


def test_random_numbers_go_on_where_the_workload_left_them(runner, tmp_path):
    model = workload(tmp_path, SEEDED)
    jobs = [replace(job_for(model, task=Probe(64, (0,))), fresh_data=f) for f in (True, False)]
    for number, job in enumerate(jobs):
        assert isinstance(runner.run(job, tmp_path / str(number)), outcomes.Probed)
    own, shared = noted(tmp_path, "drawn")
    assert shared == own


SEEDED = """
import random
import numpy
from torch.utils.data import IterableDataset
random.seed(3)
numpy.random.seed(3)
DRAWN = []
class Stream(IterableDataset):
    def __iter__(self):
        if not DRAWN:
            DRAWN.append(f"{random.random()},{numpy.random.rand()}")
            note("drawn", DRAWN[0])
        points = plain.build_dataset()
        return (points[number % 256] for number in range(1024))
def build_dataset():
    random.random(), numpy.random.rand()
    return Stream()
del evaluate
"""
