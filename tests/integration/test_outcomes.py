"""Each way in which a user's code can go well or wrong, run by a real child."""

from pathlib import Path

import pytest

from autotune.job import FindLimits, Inspect, Job, Probe
from autotune.outcome import (
    Crashed,
    Inspected,
    Measured,
    NonFinite,
    NotApplied,
    OutOfMemory,
    Probed,
    Rejected,
    SpeedLimits,
    UserError,
)
from children import QUICK, WORKLOADS, job_for, run_child


def line_of(workload: str, text: str) -> str:
    """file:line of the only line with this text."""
    path = WORKLOADS / f"{workload}.py"
    (number,) = [n for n, line in enumerate(path.read_text().splitlines(), 1) if text in line]
    return f"{path}:{number}"


def outcome_of(workload: str, folder: Path, **job):
    return run_child(folder, job_for(WORKLOADS / f"{workload}.py", **job))


@pytest.mark.parametrize("workload", ["plain", "nested_batches", "stream"])
def test_a_workload_that_trains_is_measured(workload, tmp_path):
    outcome = outcome_of(workload, tmp_path)
    assert isinstance(outcome, Measured)
    assert len(outcome.measurement.blocks) == 6
    assert outcome.measurement.samples_per_second > 0
    assert outcome.measurement.peak_memory_bytes > 1 << 20


def test_rubbish_on_stdout_and_stderr_does_not_reach_the_outcome(tmp_path):
    outcome = outcome_of("noisy", tmp_path)
    assert isinstance(outcome, Measured)
    printed = (tmp_path / "trial" / "stdout.log").read_bytes()
    assert b"\xff\xfe\x00\x1b[2J" in printed
    assert len(printed) > 5_000_000
    assert b"\xff\xfe" in (tmp_path / "trial" / "stderr.log").read_bytes()


@pytest.mark.parametrize(("batch_size", "least", "most"), [(8, 0.99, 1.0), (128, 0.3, 0.8)])
def test_a_probe_sees_that_a_large_batch_learns_less(batch_size, least, most, tmp_path):
    job = {"task": Probe(samples=512, seeds=(0, 1, 0)), "settings": {"batch_size": batch_size}}
    outcome = outcome_of("needs_many_updates", tmp_path, **job)
    assert isinstance(outcome, Probed)
    assert all(least <= quality <= most for quality in outcome.qualities)
    assert outcome.qualities[0] == outcome.qualities[2], "the same seed"


def test_loader_and_computation_have_limits_of_their_own(tmp_path):
    outcome = outcome_of("plain", tmp_path, task=FindLimits(QUICK))
    assert isinstance(outcome, SpeedLimits)
    assert outcome.loader > 0
    assert outcome.compute > 0


def test_an_inspection_says_what_the_workload_is(tmp_path):
    job = Job(Inspect(), "cpu", str(WORKLOADS / "stream.py"))
    outcome = run_child(tmp_path, job)
    assert isinstance(outcome, Inspected)
    assert outcome.machine.device == "cpu"
    assert outcome.workload.dataset_samples is None
    assert not outcome.workload.has_evaluate
    assert outcome.workload.baseline == {"batch_size": 8, "num_threads": 1}


def test_an_exit_is_named_with_its_line(tmp_path):
    outcome = outcome_of("exits", tmp_path)
    assert isinstance(outcome, UserError)
    assert outcome.detail == "the code called sys.exit('no licence found')"
    assert outcome.where == line_of("exits", "sys.exit(")


def test_an_error_in_a_worker_is_named_as_it_was_raised(tmp_path):
    outcome = outcome_of("worker_raises", tmp_path, settings={"num_workers": 1})
    assert isinstance(outcome, UserError)
    assert outcome.detail == "ValueError: sample 5 is damaged"
    assert outcome.where == line_of("worker_raises", "raise ValueError")


def test_a_worker_that_dies_has_crashed(tmp_path):
    outcome = outcome_of("worker_dies", tmp_path, settings={"num_workers": 1})
    assert isinstance(outcome, Crashed)
    assert "DataLoader worker" in outcome.detail


def test_a_breach_of_the_contract_is_named_with_the_file(tmp_path):
    outcome = outcome_of("loss_is_vector", tmp_path)
    assert isinstance(outcome, UserError)
    assert f"{WORKLOADS / 'loss_is_vector.py'}: compute_loss must return a scalar" in outcome.detail


@pytest.mark.parametrize(
    ("workload", "detail"),
    [
        ("short_stream", "no full batch"),
        ("unpicklable", "cannot be sent to DataLoader workers"),
    ],
)
def test_what_a_dataset_cannot_do_rejects_the_configuration(workload, detail, tmp_path):
    settings = {"num_workers": 1} if workload == "unpicklable" else {}
    outcome = outcome_of(workload, tmp_path, settings=settings)
    assert isinstance(outcome, Rejected)
    assert detail in outcome.detail


@pytest.mark.parametrize(
    ("workload", "detail"),
    [
        ("segfaults", "killed by SIGSEGV"),
        ("aborts", "killed by SIGABRT"),
    ],
)
def test_a_process_that_dies_silently_has_crashed(workload, detail, tmp_path):
    outcome = outcome_of(workload, tmp_path)
    assert isinstance(outcome, Crashed)
    assert detail in outcome.detail


def test_a_loss_that_is_not_a_number_is_not_finite(tmp_path):
    assert outcome_of("nan_loss", tmp_path) == NonFinite("the loss became nan")


def test_threads_changed_behind_our_back_are_noticed(tmp_path):
    assert outcome_of("changes_threads", tmp_path) == NotApplied("num_threads", "1", "2")


def test_the_device_allocators_error_is_out_of_device_memory(tmp_path):
    outcome = outcome_of("device_hog", tmp_path, settings={"batch_size": 64})
    assert isinstance(outcome, OutOfMemory)
    assert outcome.memory == "device"
    assert "CUDA out of memory" in outcome.detail


def test_an_error_at_a_large_batch_is_the_users(tmp_path):
    outcome = outcome_of("fails_when_large", tmp_path, settings={"batch_size": 64})
    assert isinstance(outcome, UserError)
    assert outcome.detail == "ValueError: only 32 slots in the memory bank"
    assert outcome.where == line_of("fails_when_large", "raise ValueError")


def test_what_a_file_sets_when_it_is_imported_is_part_of_its_baseline(tmp_path):
    outcome = run_child(tmp_path, Job(Inspect(), "cpu", str(WORKLOADS / "sets_process.py")))
    assert isinstance(outcome, Inspected)
    expected = {"num_threads": 1, "float32_matmul_precision": "medium", "cudnn_benchmark": False}
    assert outcome.workload.baseline == expected


def test_a_trial_overrides_what_a_file_sets_when_it_is_imported(tmp_path):
    settings = {"batch_size": 8, "num_threads": 2, "float32_matmul_precision": "highest"}
    assert isinstance(outcome_of("sets_process", tmp_path, settings=settings), Measured)
