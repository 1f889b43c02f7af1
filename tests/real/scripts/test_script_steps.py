"""The steps of scripts that train in all kinds of ways, and the samples of each."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from asked_scripts import SCRIPTS, Ask, observed, reason
from autotune.configuration.best_config import read_best
from autotune.configuration.job import Measure, Observe, Probe, TakeFirstSteps
from autotune.process.runner import SubprocessRunner
from autotune.values.outcome import FirstLosses, Measured, NotApplied, Probed, UserError
from children import QUICK, ended_as, hurried, measured, succeeded
from factories import written
from needs import installed
from tuned_scripts import report_of, run

LOADERLESS = "no torch DataLoader feeds training"
BY_HAND = "the script updates its weights without a torch optimizer"
OPPONENTS = "it trains several models with separate losses, as a GAN does"


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    with SubprocessRunner(tmp_path_factory.mktemp("runner") / "inductor") as runner:
        yield runner


@pytest.fixture
def ask(runner, tmp_path):
    return Ask(runner, tmp_path / "trial")


@pytest.mark.parametrize(
    "way",
    [
        *("optimizer", "two losses", "compiled step", "lbfgs"),
        *("backward", "checkpointed", "weighted", "traced first"),
    ],
)
def test_a_step_and_its_samples_are_seen_without_a_loader(ask, way):
    """LBFGS evaluates its closure four times; a checkpointed block calls backward once more."""
    seen = observed(ask("no_loader.py", way))
    assert seen.samples_per_second == pytest.approx(16 * seen.steps_per_second)
    assert seen.counts_samples
    assert seen.workload.baseline["batch_size"] == 16
    assert seen.workload.baseline["accumulation_steps"] == 1
    assert seen.training_loader == ""
    assert seen.fixed["num_workers"] == LOADERLESS
    has_optimizer = way in ("optimizer", "two losses", "compiled step", "lbfgs")
    assert (seen.fixed.get("optimizer_impl") == BY_HAND) != has_optimizer


@pytest.mark.parametrize("way", ["kept batches", "validated first", "compiled model"])
def test_a_loader_that_is_read_before_training_does_not_feed_it(ask, way):
    seen = observed(ask("no_loader.py", way))
    assert seen.fixed["num_workers"] == LOADERLESS
    assert seen.samples_per_second == pytest.approx(16 * seen.steps_per_second)
    assert ("compile_mode" in seen.fixed) == (way == "compiled model")
    run = measured(ask("no_loader.py", way, task=Measure(QUICK), settings={}))
    assert {block.samples % 16 for block in run.blocks} == {0}


def test_a_script_that_draws_its_batches_keeps_them_where_its_weights_are_rounded(ask):
    own, rounded = (
        ask("no_loader.py", "optimizer", task=TakeFirstSteps(10, nudge), settings={})
        for nudge in (0.0, 2.0**-10)
    )
    assert isinstance(own, FirstLosses), own
    assert isinstance(rounded, FirstLosses), rounded
    assert rounded.losses == pytest.approx(own.losses, rel=0.02)
    assert rounded.losses != own.losses
    assert rounded.moves == pytest.approx(own.moves, rel=0.1)


DROPOUT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 32), nn.Dropout(0.5), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.randn(512, 4), torch.randn(512, 1)), batch_size=16)
for _ in range(10_000):
    for x, y in loader:
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def test_dropout_draws_other_numbers_where_weights_are_rounded(ask, tmp_path):
    """So the spread of the losses has what another order of random numbers changes."""
    script = str(written(tmp_path, DROPOUT, "train.py"))
    own, again, rounded = (
        ask(script, task=TakeFirstSteps(10, nudge), settings={}) for nudge in (0.0, 0.0, 2.0**-20)
    )
    assert isinstance(own, FirstLosses), own
    assert isinstance(again, FirstLosses), again
    assert isinstance(rounded, FirstLosses), rounded
    assert again.losses == own.losses
    assert rounded.losses != pytest.approx(own.losses, rel=0.01)


def test_further_seeds_of_a_script_that_seeds_itself_differ_and_repeat(ask):
    losses = []
    for seed in (0, 0, 1, 1, 2):
        task = Probe(1600, (seed,), loss="mean")
        outcome = ended_as(Probed, ask("classifies.py", "--seed", "3", task=task, settings={}))
        losses += outcome.qualities
    assert losses[0] == losses[1]
    assert losses[2] == losses[3]
    assert len(set(losses)) == 3
    assert max(losses) < 2 * min(losses), "by chance alone"


def test_a_script_ends_when_its_loss_is_reached(ask):
    task = Probe(1600, (0,), loss="mean", most=3200)
    outcome = ended_as(Probed, ask("classifies.py", "--seed", "3", task=task, settings={}))
    ((_, loss, _),) = outcome.reached
    task = replace(task, reach=1.3 * loss)
    sooner = ended_as(Probed, ask("classifies.py", "--seed", "3", task=task, settings={}))
    ((samples, last, _),) = sooner.reached
    assert samples < 1600
    assert last <= 1.35 * loss


def test_flags_are_read_back_without_a_loader(ask):
    asked = {
        "task": Measure(QUICK),
        "settings": {"batch_size": 8, "accumulation_steps": 2},
        "by_flag": ("batch_size", "accumulation_steps"),
        "asked": (),
    }
    words = ("no_loader.py", "optimizer", "--batch-size", "8", "--accumulate")
    run = measured(ask(*words, "2", **asked))
    assert {block.samples % 16 for block in run.blocks} == {0}
    assert ask(*words, "4", **asked) == NotApplied("accumulation_steps", "2", "4")
    words = ("no_loader.py", "optimizer", "--accumulate", "2", "--batch-size")
    assert ask(*words, "4", **asked) == NotApplied("batch_size", "8", "4")


def test_samples_that_a_model_gets_by_name_are_counted(ask):
    seen = observed(ask("no_loader.py", "keywords"))
    assert seen.samples_per_second == pytest.approx(16 * seen.steps_per_second)


def test_without_a_loader_evaluations_are_left_out(ask):
    """Each evaluation takes half a second, so that with them four steps would take longer."""
    seen = observed(ask("no_loader.py", "optimizer", "--evaluate-every", "4"))
    assert seen.steps_per_second > 4 / 0.5


@pytest.mark.parametrize(
    ("way", "doubt"),
    [
        *((way, OPPONENTS) for way in ("tensors", "batches", "actor-critic")),
        *((way, "") for way in ("one loss", "one after the other")),
    ],
)
def test_losses_of_models_that_train_against_each_other_judge_nothing(ask, way, doubt):
    task = Observe(loss_seconds=1.0, source="x")
    seen = observed(ask("several_optimizers.py", way, task=task))
    assert seen.loss.doubt == doubt
    assert bool(seen.loss.sums.settled_gradients) == (not doubt)


SLOW_START = """
import time
import torch

time.sleep(6)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
while True:
    optimizer.zero_grad()
    model(torch.randn(4, 2)).sum().backward()
    optimizer.step()
"""


def test_a_loss_is_watched_however_long_the_script_takes_to_start(runner, tmp_path):
    """More than half of the deadline has gone by its first step."""
    script = written(tmp_path, SLOW_START, "slow_start.py")
    ask = Ask(runner, tmp_path / "trial", deadline_seconds=12.0)
    seen = observed(ask(str(script), task=Observe(loss_seconds=0.5)))
    said = re.search(r"in (\d+) steps \(a longer --time-budget", seen.loss.doubt)
    assert said, seen.loss.doubt
    assert int(said[1]) > 100


@pytest.mark.parametrize("way", ["tensors", "compiled loss"])
def test_steps_are_counted_where_samples_are_unknown(ask, way):
    seen = observed(ask("no_loader.py", way))
    assert not seen.counts_samples
    assert seen.samples_per_second == seen.steps_per_second
    assert "samples of a step" in seen.fixed["batch_size"]
    assert isinstance(ask("no_loader.py", way, task=Measure(QUICK)), Measured)


def test_a_loss_that_is_no_scalar_is_named_with_its_line(ask):
    outcome = ended_as(UserError, ask("no_loader.py", "vector"))
    said = "RuntimeError: grad can be implicitly created only for scalar outputs"
    assert outcome.detail == said
    name, _, number = outcome.where.rpartition(":")
    assert Path(name).name == "no_loader.py"
    source = (SCRIPTS / "no_loader.py").read_text().splitlines()
    assert "backward" in source[int(number) - 1]


@pytest.mark.parametrize(
    ("way", "kind"), [("torchdata", "StatefulDataLoader"), ("by hand", "Loader")]
)
def test_a_loader_with_an_iterator_of_its_own_keeps_its_settings(ask, way, kind):
    if way == "torchdata":
        installed("torchdata")
    seen = observed(ask("own_iterator.py", way))
    assert seen.fixed["num_workers"] == f"{kind} has its own __iter__"
    assert seen.training_loader == ""
    assert seen.workload.baseline["batch_size"] == 16
    assert seen.samples_per_second == pytest.approx(16 * seen.steps_per_second)


def test_a_loader_whose_iterator_wraps_torch_s_own_is_tuned(ask):
    seen = observed(ask("own_iterator.py", "wrapped"))
    assert seen.training_loader.startswith("own_iterator.py:")
    assert seen.workload.baseline["num_workers"] == 0
    assert seen.samples_per_second == pytest.approx(16 * seen.steps_per_second)
    settings = {"num_workers": 1, "prefetch_factor": 2}
    asked = {"task": Measure(QUICK), "settings": settings, "asked": tuple(settings)}
    assert isinstance(ask("own_iterator.py", "wrapped", **asked), Measured)


@pytest.mark.parametrize("what", ["task", "looked at first"])
def test_settings_are_read_back_where_training_calls(ask, what):
    """The task's own compile() would compile the model in it, which training does not call."""
    settings = {"compile_mode": "default", "channels_last": True}
    asked = {"task": Measure(QUICK), "settings": settings, "asked": tuple(settings)}
    run = measured(ask("task_module.py", what, **asked))
    assert run.compile_seconds > 0


def test_a_model_of_which_parts_are_compiled_is_not_compiled_again(ask):
    seen = observed(ask("task_module.py", "in parts"))
    assert seen.fixed["compile_mode"] == "the script compiles parts of its model itself"


def test_each_of_several_models_is_looked_at(ask):
    """The encoder comes first and runs eagerly; the script compiles the decoder."""
    seen = observed(ask("encodes.py"))
    assert seen.fixed["compile_mode"] == "the script compiles parts of its model itself"
    settings = {"compile_mode": "max-autotune-no-cudagraphs"}
    asked = {"task": Measure(QUICK), "settings": settings, "asked": tuple(settings)}
    mode = "max-autotune-no-cudagraphs"
    assert ask("encodes.py", **asked) == NotApplied("compile_mode", mode, "default")


def test_models_trained_one_after_the_other_are_named_as_the_fault(ask):
    said = reason(ask("several_optimizers.py", "folds", task=Measure(QUICK)))
    assert said.startswith("it trains one model after another, the first for 20 steps")


def test_models_trained_alternately_are_timed_together(ask):
    measured(ask("several_optimizers.py", "models alternately", task=Measure(QUICK)))


def test_a_search_without_loader_and_optimizer_ends_with_an_answer_that_run_takes(tmp_path):
    script = shutil.copy(SCRIPTS / "no_loader.py", tmp_path / "train.py")
    space = written(tmp_path, "num_workers: [0, 1]\nnum_threads: [1, 2]\n")
    flags = ("--space", space, "--trials", "2")
    done = succeeded(hurried(tmp_path, "search", "train.py", *flags, "--", "tensors"))
    assert "samples unknown: each step counts as one sample" in done.stderr
    assert f"note: num_workers stays 0: {LOADERLESS}" in done.stderr
    best = tmp_path / "studies" / "train" / "best.yaml"
    assert read_best(best).evidence.unit == "steps"
    assert re.search(r"throughput +\S+ -> \S+ steps/s", done.stdout + done.stderr)
    words = ("--allow-numerics", script, "backward", "--steps", "9")
    ran = run(tmp_path, *words, amp_dtype="bfloat16")
    assert "amp_dtype=bfloat16" in report_of(ran)[0]


def test_a_module_in_data_parallel_is_searched_as_it_is(tmp_path):
    source = (SCRIPTS / "plain_loop.py").read_text()
    made = "model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 2))"
    assert made in source
    wrapped = source.replace(made, f"{made}\n    model = nn.DataParallel(model)")
    written(tmp_path, wrapped, "train.py")
    done = succeeded(hurried(tmp_path, "search", "train.py", "--dry-run", "--", "--epochs", "99"))
    assert "num_workers: 0, 1" in done.stderr
