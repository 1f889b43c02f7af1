"""Searches that hold the effective batch: what they try, on which evidence, by real children."""

from dataclasses import replace

import pytest

from autotune.configuration.best_config import read_best
from autotune.configuration.job import Gate, Measure
from autotune.configuration.training_config import TrainingConfig
from autotune.searching.run.events import TrialEnded
from autotune.values.outcome import Gated, Inspected, NonFinite, OutOfMemory, Signature
from children import SETTINGS, WORKLOADS, ended_as, job_for, measured, run_child
from command_line import told
from factories import cpu_machine, written
from scripted_runner import FACTS, ScriptedRunner, agreeing, at, batch_of, events_of, unstored_in
from tiers import late

SPLITS = "batch_size: [8, 16, 32, 64]\n"


def own(**settings):
    """The inspection of a workload with these settings."""
    return Inspected(cpu_machine(), replace(FACTS, baseline=settings))


def smaller_is_faster(config, phase):
    return at(1000 / batch_of(config))


def searched(folder, *, baseline=None, space=SPLITS, trials=8, runner=None, **options):
    """The runner and the last event of a search that begins with batches of 64."""
    found = own(**(baseline or {"batch_size": 64, "num_threads": 1}))
    runner = replace(runner or ScriptedRunner(smaller_is_faster), inspected=found)
    events = events_of(unstored_in(folder, space=space, trials=trials, **options), runner)
    return runner, events


def splits_tried(runner):
    """Batch sizes and batches a step of the timed trials, in ascending order."""
    configs = [
        TrainingConfig.of(job.config) for job in runner.jobs if isinstance(job.task, Measure)
    ]
    return sorted({(c["batch_size"], c["accumulation_steps"]) for c in configs})


def gates(runner):
    return [job for job in runner.jobs if isinstance(job.task, Gate)]


ACCUMULATES = {"batch_size": 16, "accumulation_steps": 4, "num_threads": 1}


@pytest.mark.parametrize(
    ("options", "splits"),
    [
        ({"effective_batch": "keep"}, [(8, 8), (16, 4), (32, 2), (64, 1)]),
        ({"effective_batch": 32}, [(8, 4), (16, 2), (32, 1), (64, 1)]),
        ({"baseline": ACCUMULATES}, [(8, 8), (16, 4), (32, 2), (64, 1)]),
        ({"baseline": ACCUMULATES, "effective_batch": "free"}, [(8, 4), (16, 4), (32, 4), (64, 4)]),
    ],
    ids=["kept", "a number, but for the baseline", "kept where it accumulates", "free"],
)
def test_a_search_tries_the_parts_of_the_effective_batch_alone(options, splits, tmp_path):
    runner, events = searched(tmp_path, **options)
    assert splits_tried(runner) == splits
    best = events[-1].best
    assert (best.config["batch_size"], best.config["accumulation_steps"]) == splits[0]


def test_parts_whose_gradients_add_up_to_the_same_need_no_probe(tmp_path):
    runner, events = searched(tmp_path, effective_batch="keep")
    accuracy = events[-1].best.constraints.accuracy
    assert {batch for batch, _ in runner.probes()} == {64}
    assert accuracy.evidence == "numerical check"
    assert accuracy.split_error == 1e-6
    assert not accuracy.needs_full_run
    assert accuracy.split_text.endswith("by 0.0001 % on the same samples (rounding)")


def test_each_split_is_checked_once_with_the_numerics_of_the_baseline(tmp_path):
    space = SPLITS + "amp_dtype: [null, bfloat16]\nnum_workers: [0, 2]\n"
    runner, _ = searched(tmp_path, effective_batch="keep", space=space, trials=16)
    split = [job for job in gates(runner) if job.config["batch_size"] != 64]
    sizes = [job.config["batch_size"] for job in split]
    assert len(set(sizes)) == len(sizes) > 1
    for job in split:
        assert job.task.reference["batch_size"] == 64
        changed = {n for n, v in job.task.reference.items() if job.config[n] != v}
        assert changed == {"batch_size", "accumulation_steps"}


@pytest.mark.parametrize(
    "found",
    [agreeing(gradient_error=0.3), NonFinite("the loss is nan"), OutOfMemory("host", "no")],
    ids=["batch-norm", "not-finite", "no-memory"],
)
def test_parts_that_do_not_add_up_to_the_same_are_probed_and_it_is_said(found, tmp_path):
    runner = ScriptedRunner(smaller_is_faster, gate=lambda config: found)
    runner, events = searched(tmp_path, effective_batch="keep", runner=runner)
    accuracy = events[-1].best.constraints.accuracy
    assert {batch for batch, _ in runner.probes()} > {64}
    assert accuracy.evidence == "short trainings"
    assert accuracy.needs_full_run
    if isinstance(found, Gated):
        assert "differ by 30 % on the same samples (more than rounding" in accuracy.split_text
    else:
        assert accuracy.split_text == ""


def test_parts_are_checked_for_each_layer_that_a_knob_of_the_users_own_may_make(tmp_path):
    """Parts of layers that look at one sample say nothing of those that look at a batch."""

    def is_of_batches(config):
        return config["options.norm"] == "batch"

    def measure(config, phase):
        return at(1000 / batch_of(config) * (2 if is_of_batches(config) else 1))

    def quality(config, seed):
        return 0.5 if is_of_batches(config) and batch_of(config) < 64 else 0.9

    def gate(config):
        return agreeing(gradient_error=0.3 if is_of_batches(config) else 1e-9)

    signatures = {"build_model": Signature("build_model(norm='layer')", {"norm": "layer"})}
    facts = replace(FACTS, baseline={"batch_size": 64, "num_threads": 1}, signatures=signatures)
    found = Inspected(cpu_machine(), facts)
    runner = ScriptedRunner(measure, quality=quality, gate=gate, inspected=found)
    space = f"{SPLITS}options:\n  norm: [layer, batch]\n"
    options = unstored_in(tmp_path, space=space, trials=8, effective_batch="keep")
    best = events_of(options, runner)[-1].best
    assert (best.config["batch_size"], best.config["options.norm"]) == (8, "layer")
    assert not best.constraints.accuracy.needs_full_run


def test_parts_that_train_to_less_are_not_the_answer(tmp_path):
    def quality(config, seed):
        return 0.9 if batch_of(config) == 64 else 0.5

    gate = lambda config: agreeing(gradient_error=0.3)  # noqa: E731
    runner = ScriptedRunner(smaller_is_faster, quality=quality, gate=gate)
    _, events = searched(tmp_path, effective_batch="keep", runner=runner)
    assert events[-1].best.keeps_baseline


def test_steps_of_other_samples_than_the_baselines_are_not_compared(tmp_path):
    runner, events = searched(tmp_path, effective_batch=32)
    assert gates(runner) == []
    assert events[-1].best.constraints.accuracy.needs_full_run


def test_the_learning_rate_follows_the_effective_batch(tmp_path):
    runner, _ = searched(tmp_path, effective_batch="keep", lr_scaling="linear")
    assert {job.lr_factor for job in runner.jobs} == {1.0}
    space = "accumulation_steps: [1, 2]\n"
    runner, _ = searched(tmp_path / "free", space=space, lr_scaling="linear")
    factors = {job.config["accumulation_steps"]: job.lr_factor for job in runner.jobs if job.config}
    assert factors == {1: 1.0, 2: 2.0}


def test_the_answer_of_a_held_search_is_read_again_and_can_be_tried_first(tmp_path):
    searched(tmp_path, effective_batch="keep")
    answer = read_best(tmp_path / "best.yaml").training_config
    _, events = searched(tmp_path / "again", effective_batch=32, warm_start=(answer,))
    first = next(e for e in events if isinstance(e, TrialEnded) and e.trial.number == 1)
    assert (first.trial.config["batch_size"], first.trial.config["accumulation_steps"]) == (8, 4)


@pytest.mark.parametrize(
    ("workload", "agrees", "in_double"),
    [
        ("plain", True, True),
        *((name, False, True) for name in ("batch_norm", "mean_of_tokens", "sum_of_samples")),
        ("sum_of_samples", False, False),
        *(late("tiny_conv", True, in_double) for in_double in (True, False)),
        *(late("contrastive", False, in_double) for in_double in (True, False)),
        *(late(name, False, False) for name in ("batch_norm", "mean_of_tokens")),
        late("plain", True, False),
    ],
)
@pytest.mark.real
def test_a_child_tells_a_mean_over_samples_from_what_depends_on_the_batch(
    workload, agrees, in_double, tmp_path
):
    whole = TrainingConfig.of({**SETTINGS, "batch_size": 32}).as_dict()
    parts = {"batch_size": 8, "accumulation_steps": 4}
    job = job_for(WORKLOADS / f"{workload}.py", parts, task=Gate(whole, in_double))
    found = ended_as(Gated, run_child(tmp_path, job))
    assert found.in_double == in_double
    assert (found.gradient_error < (1e-9 if in_double else 1e-5)) == agrees
    assert (found.gradient_error > 0.005) == (not agrees)


@pytest.mark.real
def test_a_child_that_accumulates_is_timed_and_reads_it_back(tmp_path):
    run = measured(run_child(tmp_path, job_for(WORKLOADS / "plain.py", {"accumulation_steps": 4})))
    assert all(block.samples % 32 == 0 for block in run.blocks)
    assert run.epoch_samples == 256


def test_a_baseline_that_does_not_fit_ends_the_search_with_advice(tmp_path):
    def measure(config, phase):
        return OutOfMemory("host", "killed", 4 << 30) if batch_of(config) > 32 else at(100)

    for folder, options in (("free", {}), ("kept", {"effective_batch": "keep"})):
        _, events = searched(tmp_path / folder, runner=ScriptedRunner(measure), **options)
        assert list(events[-1].reasons) == [
            "your settings: out of host memory: killed; begin with a smaller batch"
        ]


@pytest.mark.long
def test_smaller_batches_of_the_same_gradients_take_less_memory(tmp_path):
    model = WORKLOADS / "wide.py"
    parts = {"batch_size": 32, "accumulation_steps": 4}
    peaks = [
        run_child(tmp_path / str(n), job_for(model, settings)).measurement.peak_memory_bytes
        for n, settings in enumerate(({"batch_size": 128}, parts))
    ]
    assert peaks[1] < peaks[0]
    whole = TrainingConfig.of({**SETTINGS, "batch_size": 128}).as_dict()
    found = run_child(tmp_path / "gate", job_for(model, parts, task=Gate(whole, in_double=True)))
    assert found.gradient_error < 1e-9


@pytest.mark.parametrize("text", ["0", "-4", "half", "1.5", ""])
def test_an_effective_batch_that_is_none_is_refused(text, tmp_path):
    done = told(tmp_path, "search", WORKLOADS / "plain.py", "--effective-batch", text)
    assert done.code == 2
    assert f"{text!r} is not free, keep or a number of samples" in done.err


def test_an_effective_batch_that_no_divisor_gives_ends_the_command_before_any_training(tmp_path):
    space = written(tmp_path, "batch_size: [16, 32]\n")
    flags = ("--effective-batch", "100", "--space", space)
    done = told(tmp_path, "search", WORKLOADS / "plain.py", *flags)
    assert done.code == 2
    assert (
        f"{space}:1:13: --effective-batch: no batch_size of 8, 16, 32 times accumulation_steps "
        "gives 100 in each process. Its divisors are 1, 2, 4, 5, 10, 20, 25, 50, 100: add one of "
        "them as a batch_size. Or give --effective-batch free, or a multiple of 8, such as 104."
    ) in done.err
    assert "Traceback" not in done.err
    assert not list(tmp_path.glob("studies/plain/trials/0*"))
