"""Whatever a trial does to itself becomes an outcome, and nothing of it is left."""

import os
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from autotune.configuration.job import Measure, MeasurePlan
from autotune.process.children import MOST_BYTES
from autotune.process.runner import SubprocessRunner
from autotune.values import outcome as outcomes
from autotune.values.measurement import QUIET
from autotune.values.outcome import Measured, NotApplied, UserError
from children import (
    WORKLOADS,
    ended_as,
    job_for,
    measured,
    model_of,
    nobody_is_left,
    only_its_host_is_left,
    shared_job,
)
from covering import covers
from factories import written
from leaks import shared_memory
from tiers import late


@pytest.fixture
def outcome_of(runner, place, tmp_path):
    def run(workload, **settings):
        job = shared_job(WORKLOADS / f"{workload}.py", settings)
        outcome = runner.run(job, tmp_path / "trial")
        assert (tmp_path / "trial" / "launch").read_text().startswith("forked")
        assert only_its_host_is_left(place)
        return outcome

    return run


def umask():
    """This process' own."""
    os.umask(mask := os.umask(0))
    return mask


def log_of(folder, name="stderr.log"):
    return (folder / "trial" / name).read_text(encoding="utf-8", errors="replace")


@covers("T1", "T2", "T10")
@pytest.mark.parametrize(
    ("batch_size", "expected"),
    [
        (16, outcomes.Crashed("killed by SIGSEGV")),
        (17, outcomes.Crashed("killed by SIGABRT")),
        (18, outcomes.Crashed("killed by SIGKILL")),
        (19, outcomes.Crashed("exited with code 0 without a result")),
        late(26, outcomes.Crashed("exited with code 1 without a result")),
        (64, outcomes.NonFinite("the loss became nan")),
        late(65, outcomes.NonFinite("the loss became inf")),
    ],
)
def test_a_trial_that_dies_says_how_and_is_never_a_success(batch_size, expected, outcome_of):
    assert outcome_of("faulty", batch_size=batch_size) == expected


@covers("T1")
@pytest.mark.parametrize("batch_size", [16, late(17)])
def test_the_log_of_a_crash_holds_the_stack(batch_size, outcome_of, tmp_path):
    outcome_of("faulty", batch_size=batch_size)
    assert "Fatal Python error" in log_of(tmp_path)
    assert 'faulty.py", line' in log_of(tmp_path)
    assert "in compute_loss" in log_of(tmp_path)


@covers("T10", "U9")
@pytest.mark.parametrize(
    ("batch_size", "detail"),
    [
        (20, "the code called sys.exit(0)"),
        late(21, "KeyboardInterrupt: no message"),
        (22, "StrangeError: odd"),
    ],
)
def test_an_exit_of_the_program_is_the_users_error_with_its_line(batch_size, detail, outcome_of):
    outcome = ended_as(outcomes.UserError, outcome_of("faulty", batch_size=batch_size))
    assert outcome.detail == detail
    assert outcome.where.startswith(f"{WORKLOADS / 'faulty.py'}:")


@covers("T3", "T4")
@pytest.mark.parametrize(
    ("batch_size", "memory", "words"),
    [
        (160, "device", ["20.00 GiB", "3.12 GiB is free"]),
        (24, "host", ["can't allocate memory"]),
        (25, "host", ["could not allocate"]),
    ],
)
def test_memory_that_cannot_be_had_is_named_with_its_kind(batch_size, memory, words, outcome_of):
    outcome = ended_as(outcomes.OutOfMemory, outcome_of("faulty", batch_size=batch_size))
    assert outcome.memory == memory
    assert all(word in outcome.detail for word in words)


@covers("T4")
@pytest.mark.parametrize(
    ("kills", "kind"), [((3, 3), outcomes.Crashed), ((3, 4), outcomes.OutOfMemory)]
)
def test_a_child_killed_while_the_kernel_counts_a_kill_ran_out_of_memory(
    kills, kind, outcome_of, monkeypatch
):
    counts = iter(kills)
    monkeypatch.setattr("autotune.process.runner.oom_kills", lambda: next(counts))
    assert isinstance(outcome_of("faulty", batch_size=18), kind)


@covers("T9")
def test_workers_do_not_outlive_a_trainer_that_leaves(outcome_of):
    assert isinstance(outcome_of("faulty", batch_size=26, num_workers=4), outcomes.Crashed)


@covers("T11")
def test_a_stream_that_can_be_read_only_once_is_rejected(runner, tmp_path):
    lines = (
        "from torch.utils.data import IterableDataset\n"
        "SAMPLES = iter([build_dataset()[i] for i in range(64)])\n"
        "class Once(IterableDataset):\n"
        "    def __iter__(self):\n"
        "        return SAMPLES\n"
        "def build_dataset():\n"
        "    return Once()\n"
    )
    outcome = runner.run(job_for(model_of(tmp_path, lines)), tmp_path / "trial")
    assert outcome == outcomes.Rejected("the DataLoader gives no full batch")


@covers("T12", "U10")
def test_a_process_that_would_not_end_well_has_answered_before(outcome_of):
    assert isinstance(outcome_of("bad_teardown"), outcomes.Measured)


@covers("T13", "T14")
@pytest.mark.parametrize(
    ("batch_size", "reason"),
    [
        (8, "not readable"),
        (9, "not readable"),
        (10, "finite number"),
        late(11, "finite number"),
        (12, "without time"),
        late(13, "no blocks"),
        late(14, "not readable"),
        late(15, "recursion limit"),
    ],
)
def test_an_outcome_that_is_none_is_lost_and_no_value_of_it_stored(batch_size, reason, outcome_of):
    outcome = ended_as(outcomes.Lost, outcome_of("forges_outcome", batch_size=batch_size))
    assert reason in outcome.detail


def test_a_job_that_cannot_be_read_is_lost(runner, monkeypatch, tmp_path):
    monkeypatch.setattr("autotune.process.runner.job_to_json", lambda job: '{"device": ')
    outcome = runner.run(job_for(WORKLOADS / "plain.py"), tmp_path / "trial")
    assert isinstance(outcome, outcomes.Lost)
    assert "no readable job" in outcome.detail


@covers("T15", "S15")
@pytest.mark.parametrize("is_warm", [late(False), True])
def test_both_ends_of_a_hundred_printed_megabytes_are_kept(is_warm, tmp_path):
    with SubprocessRunner(tmp_path / "inductor", warm=is_warm) as runner:
        outcome = runner.run(shared_job(WORKLOADS / "floods.py"), tmp_path / "trial")
    assert isinstance(outcome, outcomes.Measured)
    log = tmp_path / "trial" / "stdout.log"
    assert MOST_BYTES < log.stat().st_size < MOST_BYTES + 100
    text = log.read_bytes()
    assert text.startswith(b"the first line\n")
    assert text.endswith(b"the last line\n")
    assert b"left out" in text


@covers("T16")
def test_a_trial_that_closes_every_file_and_changes_its_process_is_measured(outcome_of):
    before = (Path.cwd(), umask(), dict(os.environ))
    assert isinstance(outcome_of("closes_everything"), outcomes.Measured)
    assert (Path.cwd(), umask(), dict(os.environ)) == before


@covers("T17")
def test_a_trial_after_one_that_changed_its_process_finds_nothing_of_it(runner, tmp_path):
    runner.run(job_for(WORKLOADS / "closes_everything.py"), tmp_path / "first")
    source = (
        "import os, signal\n"
        "raise ValueError(repr((os.getcwd(), 'PATH' in os.environ, oct(os.umask(0)),\n"
        "    signal.getsignal(signal.SIGTERM).name)))\n"
    )
    outcome = runner.run(job_for(written(tmp_path, source, "model.py")), tmp_path / "second")
    assert isinstance(outcome, outcomes.UserError)
    assert outcome.detail == f"ValueError: {(str(Path.cwd()), True, oct(umask()), 'SIG_DFL')!r}"


@covers("T8")
@pytest.mark.parametrize("is_warm", [late(False), True])
def test_a_daemon_that_left_every_session_is_found_and_ended(is_warm, tmp_path):
    with SubprocessRunner(tmp_path / "inductor", warm=is_warm) as runner:
        outcome = runner.run(shared_job(WORKLOADS / "leaves_daemon.py"), tmp_path / "trial")
        assert isinstance(outcome, outcomes.Measured)
        if is_warm:
            again = runner.run(shared_job(WORKLOADS / "plain.py"), tmp_path / "again")
            assert isinstance(again, outcomes.Measured), "the host lives on"
    assert nobody_is_left(tmp_path)


@covers("U13")
def test_shared_memory_of_a_trial_that_aborts_is_given_back(outcome_of, tmp_path):
    before = shared_memory()
    outcome = outcome_of("leaves_shared_memory", num_workers=2)
    assert outcome == outcomes.Crashed("killed by SIGABRT")
    held = log_of(tmp_path, "stdout.log")
    assert "psm_" in held, "or nothing is shown"
    assert "torch_" in held, "or nothing is shown"
    mine = {name for name in shared_memory() if f"'{name}'" in held}
    assert mine <= before


@covers("U13")
def test_tensors_of_workers_that_were_killed_before_they_were_passed_on_are_given_back(
    outcome_of, tmp_path
):
    before = shared_memory()
    assert outcome_of("leaves_half_shared", num_workers=2) == outcomes.Crashed("killed by SIGABRT")
    assert "torch_" in log_of(tmp_path, "stdout.log"), "or nothing is shown"
    assert not {name for name in shared_memory() if name.endswith("_half")} - before


@covers("U14")
def test_too_few_open_files_are_named_with_where_to_look(outcome_of):
    outcome = ended_as(outcomes.OutOfMemory, outcome_of("few_descriptors", num_workers=8))
    assert outcome.memory == "file descriptors"
    assert "ulimit -n" in outcomes.describe(outcome)


@covers("U4")
def test_functions_that_take_something_else_are_all_named(runner, tmp_path):
    source = (
        "def build_model(width):\n    pass\n"
        "build_dataset = 5\n"
        "def compute_loss(model):\n    pass\n"
        "def evaluate():\n    pass\n"
    )
    outcome = runner.run(job_for(written(tmp_path, source, "model.py")), tmp_path / "trial")
    assert isinstance(outcome, outcomes.UserError)
    for words in (
        "build_model(width) cannot be called as build_model(). Give each argument a default.",
        "build_dataset must be a function build_dataset(), not int",
        "compute_loss(model) cannot be called as compute_loss(model, batch)",
        "evaluate() cannot be called as evaluate(model, device)",
    ):
        assert words in outcome.detail


SLEPT_SECONDS = 0.002  # as in workloads/synchronises.py
PLAN = Measure(MeasurePlan(warmup_steps=5, block_seconds=0.1, block_counts=(6,), max_seconds=3.0))


def outcome_alone(workload, runner, folder):
    return runner.run(job_for(WORKLOADS / f"{workload}.py", task=PLAN), folder)


@covers("T18")
def test_a_flag_that_is_changed_after_the_warm_up_is_noticed(runner, tmp_path):
    outcome = outcome_alone("changes_flags_late", runner, tmp_path)
    assert outcome == NotApplied("cudnn_benchmark", "false", "true")


def test_a_sample_that_cannot_be_read_late_in_the_dataset_is_the_users(runner, tmp_path):
    outcome = ended_as(UserError, outcome_alone("late_damage", runner, tmp_path))
    assert outcome.detail == "OSError: sample 1000 cannot be read"
    assert outcome.where.startswith(str(WORKLOADS / "late_damage.py"))


@covers("R14")
def test_a_trial_that_is_stopped_for_a_while_is_not_slower_for_it(runner, tmp_path):
    outcome = ended_as(Measured, outcome_alone("stops_itself", runner, tmp_path))
    # Whatever else this machine does meanwhile is left out of account.
    blocks = [b if b.noise.stopped else replace(b, noise=QUIET) for b in outcome.measurement.blocks]
    run = replace(outcome.measurement, blocks=tuple(blocks))
    stopped = [block for block in run.blocks if block.noise.stopped]
    assert len(stopped) == 1
    assert not any(block.noise.stopped for block in run.telling_blocks)
    assert stopped[0].seconds > 3 * median(block.seconds for block in run.telling_blocks)


def test_a_workload_that_synchronises_itself_is_measured_with_what_that_costs(runner, tmp_path):
    run = measured(outcome_alone("synchronises", runner, tmp_path))
    assert len(run.telling_blocks) >= 6
    # Its 2 ms are slept in every step of eight samples, so none is shorter than that.
    fastest = min(block.seconds_per_sample for block in run.blocks)
    assert 8 * fastest >= SLEPT_SECONDS
