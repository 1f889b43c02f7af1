"""Each way in which a user's code can go well or wrong, run by a real child.

Those that may depend on how the process was started are run in both ways.
"""

import pytest

from autotune.configuration.job import CountFlops, Inspect, Job, Probe
from autotune.process.runner import SubprocessRunner
from autotune.training.batches import STREAM
from autotune.values import outcome as outcomes
from children import WORKLOADS, ended_as, job_for, measured
from covering import covers
from tiers import late


def line_of(workload, text):
    """file:line of the only line with this text."""
    path = WORKLOADS / f"{workload}.py"
    (number,) = [n for n, line in enumerate(path.read_text().splitlines(), 1) if text in line]
    return f"{path}:{number}"


@pytest.fixture(scope="module", params=[late("fresh"), "forked"])
def runner(request, tmp_path_factory):
    """Both ways to start a child, one host for all tests."""
    cache = tmp_path_factory.mktemp("runner") / "inductor"
    with SubprocessRunner(cache, warm=request.param == "forked") as runner:
        yield runner


# What only the training decides is the same however its process was started.
forked_only = pytest.mark.parametrize("runner", ["forked"], indirect=True)


@pytest.fixture
def run(runner, tmp_path):
    return lambda job: runner.run(job, tmp_path / "trial")


@pytest.fixture
def outcome_of(run):
    return lambda workload, **job: run(job_for(WORKLOADS / f"{workload}.py", **job))


@pytest.mark.parametrize("workload", ["plain", "nested_batches", "stream"])
@forked_only
def test_a_workload_that_trains_is_measured(workload, outcome_of):
    outcome = ended_as(outcomes.Measured, outcome_of(workload))
    blocks = outcome.measurement.blocks
    disturbed = sum(block.is_disturbed for block in blocks)
    assert 6 <= len(blocks) <= 6 + disturbed, "further ones only in place of disturbed ones"
    assert outcome.measurement.samples_per_second > 0
    assert outcome.measurement.peak_memory_bytes > 1 << 20


@covers("T15")
def test_rubbish_on_stdout_and_stderr_does_not_reach_the_outcome(outcome_of, tmp_path):
    measured(outcome_of("noisy"))
    printed = (tmp_path / "trial" / "stdout.log").read_bytes()
    assert b"\xff\xfe\x00\x1b[2J" in printed
    assert len(printed) > 5_000_000
    assert b"\xff\xfe" in (tmp_path / "trial" / "stderr.log").read_bytes()


@pytest.mark.parametrize(("batch_size", "least", "most"), [(8, 0.99, 1.0), (128, 0.3, 0.8)])
@forked_only
def test_a_probe_sees_that_a_large_batch_learns_less(batch_size, least, most, outcome_of):
    job = {"task": Probe(samples=512, seeds=(0, 1, 0)), "settings": {"batch_size": batch_size}}
    outcome = ended_as(outcomes.Probed, outcome_of("needs_many_updates", **job))
    assert all(least <= quality <= most for quality in outcome.qualities)
    assert outcome.qualities[0] == outcome.qualities[2], "the same seed"


@forked_only
def test_the_seed_alone_decides_with_which_weights_a_probe_begins(outcome_of):
    job = {"task": Probe(samples=64, seeds=(0, 1, 0))}
    first, other, again = ended_as(outcomes.Probed, outcome_of("first_weights", **job)).qualities
    assert first == again != other


@forked_only
def test_the_flops_of_a_sample_are_counted(outcome_of):
    outcome = ended_as(outcomes.CountedFlops, outcome_of("plain", task=CountFlops()))
    # A linear layer of 8 x 2: forward, and backward to the weights; nothing needs the input's.
    assert outcome.flops_per_sample == 2 * (2 * 8 * 2)
    assert outcome.number_format == "float32"
    assert outcome.matmul_flops_per_second > 0


@forked_only
def test_a_rate_of_products_that_is_known_is_not_measured_again(outcome_of):
    task = CountFlops(known_formats=("float32",))
    outcome = outcome_of("plain", settings={"num_workers": 1}, task=task)
    assert isinstance(outcome, outcomes.CountedFlops)
    assert outcome.flops_per_sample
    assert outcome.matmul_flops_per_second is None


def test_an_inspection_says_what_the_workload_is(run):
    job = Job(Inspect(), "cpu", str(WORKLOADS / "stream.py"))
    outcome = ended_as(outcomes.Inspected, run(job))
    assert outcome.machine.device == "cpu"
    assert outcome.workload.dataset_samples is None
    assert outcome.workload.workers_obstacle == STREAM
    assert not outcome.workload.has_evaluate
    assert outcome.workload.baseline == {"batch_size": 8, "num_threads": 1}


@covers("U5")
@pytest.mark.parametrize(
    ("workload", "settings", "detail"),
    [
        ("worker_raises", {"num_workers": 1}, "sample 5 is damaged"),
        ("fails_when_large", {"batch_size": 64}, "only 32 slots in the memory bank"),
    ],
)
@forked_only
def test_an_error_is_the_users_as_it_was_raised(workload, settings, detail, outcome_of):
    outcome = ended_as(outcomes.UserError, outcome_of(workload, settings=settings))
    assert outcome.detail == f"ValueError: {detail}"
    assert outcome.where == line_of(workload, "raise ValueError")


def test_a_worker_that_dies_has_crashed(outcome_of):
    outcome = ended_as(outcomes.Crashed, outcome_of("worker_dies", settings={"num_workers": 1}))
    assert "DataLoader worker" in outcome.detail


@forked_only
def test_a_breach_of_the_contract_is_named_with_the_file(outcome_of):
    outcome = ended_as(outcomes.UserError, outcome_of("loss_is_vector"))
    assert f"{WORKLOADS / 'loss_is_vector.py'}: compute_loss must return a scalar" in outcome.detail


@covers("U7", "U11")
@pytest.mark.parametrize(
    ("workload", "detail"),
    [("short_stream", "no full batch"), ("unpicklable", "cannot be sent to DataLoader workers")],
)
@forked_only
def test_an_impossible_demand_on_the_dataset_rejects_the_configuration(
    workload, detail, outcome_of
):
    settings = {"num_workers": 1} if workload == "unpicklable" else {}
    outcome = ended_as(outcomes.Rejected, outcome_of(workload, settings=settings))
    assert detail in outcome.detail


@covers("T18")
@forked_only
def test_threads_changed_behind_our_back_are_noticed(outcome_of):
    assert outcome_of("changes_threads") == outcomes.NotApplied("num_threads", "1", "2")


@pytest.mark.parametrize("runner", ["fresh", "forked"], indirect=True)
def test_settings_made_when_a_file_is_imported_are_part_of_its_baseline(run):
    outcome = run(Job(Inspect(), "cpu", str(WORKLOADS / "sets_process.py")))
    assert isinstance(outcome, outcomes.Inspected)
    expected = {"num_threads": 2, "float32_matmul_precision": "medium", "cudnn_benchmark": False}
    assert outcome.workload.baseline == expected


@forked_only
def test_a_trial_overrides_what_a_file_sets_when_it_is_imported(outcome_of):
    settings = {"batch_size": 8, "num_threads": 1, "float32_matmul_precision": "highest"}
    assert isinstance(outcome_of("sets_process", settings=settings), outcomes.Measured)
