"""A child observes, times and probes a script by interposition."""

from statistics import median

import pytest

from asked_scripts import LOADER, LONG, SCRIPTS, Ask, observed, reason
from autotune.configuration.job import Measure, Probe
from autotune.process.runner import SubprocessRunner
from autotune.scripting.trial import TOO_FEW
from autotune.values.outcome import Measured, NotApplied, Probed, Rejected
from children import QUICK, ended_as, measured, only_its_host_is_left
from covering import covers
from factories import written
from tiers import late

NO_STEP = (
    "it ended without training: no torch optimizer stepped and nothing called backward in this "
    "process (autotune does not see processes that a script starts itself)"
)
NUMERICS = ("amp_dtype", "compile_mode", "channels_last", "optimizer_impl")


@covers("X8")
def test_arguments_of_a_script_are_in_no_file_once_it_runs(ask, tmp_path):
    script = tmp_path / "reads.py"
    script.write_text(
        "import sys\n"
        "assert sys.argv[1:3] == ['--token', 'planted-hunter2']\n"
        "print(open(sys.argv[3]).read())\n"
    )
    ask(str(script), "--token", "planted-hunter2", str(ask.folder / "job.json"))
    assert '["***","***","***"]' in "".join((ask.folder / "stdout.log").read_text().split())
    files = [path for path in ask.folder.rglob("*") if path.is_file()]
    assert "job.json" in {path.name for path in files}
    assert not [path for path in files if b"planted-hunter2" in path.read_bytes()]


def test_steps_that_a_gradient_scaler_skipped_are_not_credited_to_later_ones(ask):
    """They lie in the warm-up. An optimizer that is not fused tells nothing of them."""
    run = measured(ask("scales.py", task=Measure(QUICK), settings={}))
    assert {block.samples % 16 for block in run.blocks} == {0}


def test_the_loader_that_was_read_before_the_steps_is_that_of_training(ask):
    seen = observed(ask("plain_loop.py", *LONG, "--batch-size", "8"))
    assert [name.rpartition("#")[2] for name in seen.loaders] == ["0", "0"]
    assert seen.training_loader == seen.loaders[0]
    assert seen.workload.baseline["batch_size"] == 8
    assert seen.workload.dataset_samples == 128
    assert seen.workload.image_batches
    assert seen.workload.sample_bytes == 3 * 8 * 8 * 4 + 8
    assert seen.fixed == {}
    assert seen.device == "cpu"
    assert 0 < seen.wait_share < 1
    assert seen.samples_per_second == pytest.approx(8 * seen.steps_per_second)


def test_a_batch_sampler_is_asked_for_its_batch_size(ask):
    assert observed(ask("batch_sampler_loop.py")).workload.baseline["batch_size"] == 12


def test_the_workers_of_a_stream_stay_as_they_are(ask):
    seen = observed(ask("stream_loop.py"))
    assert list(seen.fixed) == ["num_workers"]
    assert seen.workload.dataset_samples is None
    outcome = ask("stream_loop.py", task=Measure(QUICK), settings={"num_workers": 2})
    assert isinstance(outcome, NotApplied)
    assert outcome.knob == "num_workers"


@pytest.mark.parametrize("what", ["kept", "gone", "idles"])
def test_an_optimizer_that_is_built_anew_takes_the_place_of_the_first(ask, what):
    """The new one has all layers while the first is kept or gone, or others while it idles."""
    seen = observed(ask("several_optimizers.py", what))
    assert seen.samples_per_second == pytest.approx(16 * seen.steps_per_second)


def test_a_script_that_compiles_itself_is_observed(ask):
    for what in ("in place", "a function"):
        assert observed(ask("compiles.py", what)).workload.model_tensors == 4


@pytest.mark.parametrize(("asked_for", "is_applied"), [(16, True), (32, False)])
def test_a_batch_size_that_the_script_does_not_use_is_not_applied(ask, asked_for, is_applied):
    settings = {"batch_size": asked_for}
    words = ("plain_loop.py", *LONG, "--batch-size", "16")
    outcome = ask(*words, task=Measure(QUICK), settings=settings, by_flag=("batch_size",))
    if is_applied:
        assert isinstance(outcome, Measured), outcome
    else:
        assert outcome == NotApplied("batch_size", "32", "16")


def test_a_script_has_a_terminal_at_which_nobody_types(ask, tmp_path):
    """`stty size` is how scripts of 2017 and their copies find how wide to draw."""
    script = tmp_path / "draws.py"
    script.write_text(
        "import os, sys\n"
        "rows, columns = os.popen('stty size', 'r').read().split()\n"
        "assert (rows, columns) == ('24', '80')\n"
        "assert [sys.stdin.read() for _ in range(9)] == [''] * 9\n"
        "import torch\n"
    )
    assert reason(ask(str(script))) == NO_STEP


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("crash", "ValueError: a wrong path, say"),
        ("stdin", "EOFError: EOF when reading a line"),
        ("never steps", NO_STEP),
        ("exits", "the code called sys.exit('no such folder')"),
        (
            "distributed",
            "it trains in 2 processes that it starts itself. Let a launcher such as torchrun "
            "start them, and give --nproc-per-node 2",
        ),
        ("too short", TOO_FEW.format(steps=4)),
    ],
)
def test_a_script_that_cannot_be_tuned_says_why(ask, fault, expected):
    assert reason(ask("faulty.py", fault)) == expected


def test_output_of_a_script_is_no_outcome(ask):
    assert observed(ask("faulty.py", "rubbish")).workload.baseline["batch_size"] == 8
    printed = (ask.folder / "stdout.log").read_bytes()
    assert printed.startswith(b"1 disabled\n")
    assert printed.count(b"\xff") == 1000


@pytest.mark.parametrize("way", ["catches everything", "forks", "changes its folder"])
def test_a_trial_ends_with_its_own_outcome_whatever_the_script_does(ask, way, place):
    """One that forks trains in both processes, of which the first is timed."""
    measured(ask("faulty.py", way, task=Measure(QUICK), settings={"num_workers": 0}))
    assert only_its_host_is_left(place)


def test_a_trial_leaves_no_process_and_no_checkpoint(ask, tmp_path, place):
    observed(ask("faulty.py", "spawns"))
    saved = tmp_path / "model.pt"
    observed(ask("faulty.py", "saves", str(saved)))
    assert not saved.exists()
    assert only_its_host_is_left(place)


def test_a_trial_times_the_script_under_the_settings(ask):
    settings = {"num_workers": 1, "persistent_workers": True}
    run = measured(ask("plain_loop.py", *LONG, task=Measure(QUICK), settings=settings))
    assert len(run.blocks) >= 6
    assert run.epoch_samples == 128
    assert run.boundary_seconds
    assert all(block.samples % 16 == 0 for block in run.blocks)
    assert (ask.folder / "launch").read_text() == "forked\n"


def test_a_script_that_sets_its_environment_first_gets_an_interpreter_of_its_own(tmp_path):
    script = tmp_path / "train.py"
    text = (SCRIPTS / "stream_loop.py").read_text()
    script.write_text(f"import os\nos.environ['OMP_NUM_THREADS'] = '2'\n{text}")
    with SubprocessRunner(tmp_path / "inductor") as runner:
        seen = observed(Ask(runner, tmp_path / "trial")(str(script)))
    assert "may set its environment" in (tmp_path / "trial" / "launch").read_text()
    assert seen.workload.baseline["num_threads"] == 2


EVALUATES = "        model.eval()\n"
EVALUATION_SECONDS = 0.1


def test_validation_is_no_part_of_an_epoch_boundary(ask, tmp_path):
    text = (SCRIPTS / "plain_loop.py").read_text()
    assert EVALUATES in text
    sleeps = f"{EVALUATES}        time.sleep({EVALUATION_SECONDS})\n"
    script = written(tmp_path, text.replace(EVALUATES, sleeps), "train.py")
    run = measured(ask(str(script), *LONG, task=Measure(QUICK), settings={"num_workers": 0}))
    assert run.boundary_seconds
    assert median(run.boundary_seconds) < EVALUATION_SECONDS, "each one would hold a whole sleep"


def test_numerics_are_put_into_force_and_read_back(ask):
    settings = {"amp_dtype": "bfloat16", "channels_last": True, "optimizer_impl": "fused"}
    asked = (*LOADER, *NUMERICS)
    measured(ask("plain_loop.py", *LONG, task=Measure(QUICK), settings=settings, asked=asked))


def test_a_model_is_compiled_in_place(ask):
    script, settings = "batch_sampler_loop.py", {"compile_mode": "default"}
    run = measured(ask(script, task=Measure(QUICK), settings=settings, asked=("compile_mode",)))
    assert run.compile_seconds > 0


@pytest.mark.parametrize("kernel", ["flash", late("math")])
def test_the_kernel_of_attention_is_read_from_what_the_script_ran(ask, kernel):
    assert observed(ask("attends.py")).workload.attention
    settings = {"sdpa_backend": kernel, "amp_dtype": "bfloat16"}
    measured(ask("attends.py", task=Measure(QUICK), settings=settings, asked=tuple(settings)))


def test_workers_that_cannot_be_started_make_the_trial_infeasible(ask):
    outcome = ask("unpicklable_loader.py", task=Measure(QUICK), settings={"num_workers": 1})
    assert isinstance(outcome, Rejected), outcome
    assert "cannot be sent to DataLoader workers" in outcome.detail


def test_a_probe_takes_the_first_quality_after_its_samples(ask):
    arguments = ("plain_loop.py", "--epochs", "50")
    pattern = r"epoch (\d+) "
    outcome = ended_as(Probed, ask(*arguments, task=Probe(300, (0,)), settings={}, metric=pattern))
    assert outcome.qualities == (2.0,)  # 128 samples in each epoch: the third one ends at 384
    last = ended_as(Probed, ask(*arguments, task=Probe(10**9, (0,)), settings={}, metric=pattern))
    assert last.qualities == (49.0,)
    nothing = ask("plain_loop.py", task=Probe(10**9, (0,)), settings={}, metric="loss (.*)")
    assert reason(nothing) == "nothing that it printed matches --metric-regex"


@pytest.mark.parametrize(
    ("pattern", "samples", "captured"),
    [("(epoch) ", 300, "'epoch'"), ("accuracy(!)? ", 10**9, "''")],
)
def test_a_regular_expression_that_captures_no_number_is_named_as_the_fault(
    ask, pattern, samples, captured
):
    task = Probe(samples, (0,))
    outcome = ask("plain_loop.py", "--epochs", "9", task=task, settings={}, metric=pattern)
    assert reason(outcome).startswith(f"--metric-regex captures {captured}, which is not a number")


def test_batches_of_an_optimizer_step_are_observed(ask):
    found = observed(ask("accumulates.py"))
    assert found.workload.baseline["accumulation_steps"] == 4
    assert found.workload.baseline["batch_size"] == 8
    assert "accumulation_steps" not in found.fixed
    assert found.samples_per_second == pytest.approx(32 * found.steps_per_second)


def test_a_flag_for_the_batches_of_a_step_is_read_back(ask):
    asked = {
        "task": Measure(QUICK),
        "settings": {"accumulation_steps": 2, "batch_size": 16},
        "by_flag": ("batch_size", "accumulation_steps"),
        "asked": (),
    }
    flags = ("--batch-size", "16", "--accumulate", "2")
    assert isinstance(ask("accumulates.py", *flags, **asked), Measured)
    ignored = ask("accumulates.py", *flags, "--deaf", **asked)
    assert ignored == NotApplied("accumulation_steps", "2", "4")
