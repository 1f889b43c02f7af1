"""A script's own training loss judges it, without a word from the user, where it can."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import scripted_runner
from asked_scripts import Ask
from autotune.calling.flag import Flag
from autotune.configuration.best_config import read_best
from autotune.configuration.evidence import UNCHANGED
from autotune.configuration.job import TakeFirstSteps
from autotune.configuration.script import ScriptOptions
from autotune.configuration.training_config import TrainingConfig
from autotune.process.runner import SubprocessRunner
from autotune.searching.search import search as real_search
from autotune.values.outcome import FirstLosses, ObservedLoss, WorkloadFacts
from children import hurried, succeeded
from command_line import told
from factories import written
from scripted_runner import ScriptedRunner, batch_of, options_in

TESTS = Path(__file__).parents[2]
NEEDED = "the training loss cannot compare that, so it needs --metric-regex"
BOTH = "amp_dtype: [null, bfloat16]\n"
OWN = {"batch_size": 16, "num_workers": 0, "num_threads": 1}
SEEN = replace(scripted_runner.SEEN, workload=WorkloadFacts(2048, False, True, False, OWN, 18))


def search(folder, script, *words, space=BOTH):
    """Search a copy of a script; the words after a "--" are its own."""
    shutil.copy(TESTS / "scripts" / script, folder / "train.py")
    options = ("--space", str(written(folder, space)), "--trials", "2")
    place = words.index("--") if "--" in words else len(words)
    own, after = words[:place], words[place:]
    return hurried(folder, "search", "train.py", *options, *own, *after)


def answer(folder):
    return read_best(folder / "studies" / "train" / "best.yaml")


def test_bfloat16_is_found_proven_and_applied_without_an_option(tmp_path):
    done = succeeded(search(tmp_path, "classifies.py"))
    assert "quality metric: its training loss" in done.stderr
    best = answer(tmp_path)
    accuracy = best.constraints.accuracy
    assert best.config["amp_dtype"] == "bfloat16"
    assert (accuracy.metric, accuracy.evidence) == (
        "training_loss",
        "numerical check and short trainings",
    )
    assert accuracy.best < accuracy.baseline + accuracy.tolerance
    assert 0 < accuracy.numerical_check.loss_error < 0.05
    assert accuracy.compared_by == "mean training loss over the last tenth of " + (
        f"{accuracy.samples} samples"
    )
    path = tmp_path / "studies" / "train" / "best.yaml"
    shown = told(tmp_path, "run", path, "--print-command", "train.py")
    assert "needs --allow-numerics" not in shown.out
    longer = ("train.py", "--epochs", "90", "--seed=4", "--output-dir", "out")
    shown = told(tmp_path, "run", path, "--print-command", *longer)
    assert "needs --allow-numerics" not in shown.out
    shown = told(tmp_path, "run", path, "--print-command", "train.py", "--loss", "sum")
    assert "needs --allow-numerics" in shown.out, "no evidence of that training"
    assert (
        "train.py was measured with other arguments (--loss): applying only settings that "
        "preserve results (--allow-numerics applies "
        "the others)\n"
    ) in shown.err
    assert "autotune: not applying: amp_dtype=bfloat16 (needs --allow-numerics)\n" in shown.err
    shown = told(
        tmp_path, "run", path, "--allow-numerics", "--print-command", "train.py", "--loss", "sum"
    )
    assert "needs --allow-numerics" not in shown.out + shown.err
    other = tmp_path / "other.py"
    other.write_text((tmp_path / "train.py").read_text() + "# another\n")
    shown = told(tmp_path, "run", path, "--print-command", other)
    assert "needs --allow-numerics" in shown.out, "no evidence of that script"
    path.write_text(path.read_text().replace("compared_by:", "#"))
    shown = told(tmp_path, "run", path, "--print-command", "train.py")
    assert "needs --allow-numerics" in shown.out


def test_models_that_train_against_each_other_get_exact_settings_and_the_answer_says_so(tmp_path):
    space = f"{BOTH}num_workers: [0, 1]\n"
    done = succeeded(search(tmp_path, "several_optimizers.py", "--", "batches", space=space))
    why = (
        "trying only settings that preserve results; the training loss cannot compare quality: it "
        "trains several models with separate losses, as a GAN does"
    )
    assert f"amp_dtype stays null: it changes rounding: {NEEDED}" in done.stderr
    accuracy = answer(tmp_path).constraints.accuracy
    assert accuracy.metric == UNCHANGED
    assert str(accuracy.not_compared).startswith(why)
    assert why in " ".join((done.stdout + done.stderr).split())


def test_a_loss_that_is_no_mean_judges_no_other_batch_size(tmp_path):
    words = ("--map", "batch_size=--batch-size", "--dry-run", "--", "--loss", "contrastive")
    done = search(tmp_path, "classifies.py", *words, space=f"{BOTH}batch_size: [16, 64]\n")
    assert done.returncode == 0, done.stderr
    assert "note: batch_size stays 16: the first loss goes from 2." in done.stderr
    assert "with batch_size=64, so it is not a per-sample mean" in done.stderr
    assert "searching batch_size" not in done.stderr
    assert "  amp_dtype: null, bfloat16\n" in done.stderr
    assert "  batch_size:" not in done.stderr


def planned(folder, script, words, baseline, *flags, space):
    """What a search plans whose first losses are those of real trainings; the rest is scripted."""
    with SubprocessRunner(folder / "inductor") as children:
        ask = Ask(children, folder / "trial")

        def first_steps(config):
            return ask(script, *words(config), task=TakeFirstSteps(10), settings={})

        own = first_steps(TrainingConfig.of(baseline))
        assert isinstance(own, FirstLosses), own
        loss = ObservedLoss("", own.losses, own.backwards_per_step)
        seen = replace(SEEN, workload=replace(SEEN.workload, baseline=baseline), loss=loss)
        options = options_in(folder, space, script=ScriptOptions((), flags))
        runner = ScriptedRunner(observed=seen, first_steps=first_steps)
        begun = next(iter(real_search(options, runner)))
    return begun.context


@pytest.mark.parametrize("divides", [True, False])
def test_whether_a_script_divides_its_loss_by_the_batches_of_a_step_is_told(tmp_path, divides):
    def words(config):
        batch, count = str(batch_of(config)), str(config["accumulation_steps"])
        undivided = () if divides else ("--undivided",)
        return ("--batch-size", batch, "--accumulate", count, *undivided)

    flags = Flag("batch_size", "--batch-size"), Flag("accumulation_steps", "--accumulate")
    space = f"{BOTH}batch_size: [16, 64]\naccumulation_steps: [1, 4]\n"
    baseline = {**OWN, "accumulation_steps": 4}
    context = planned(tmp_path, "accumulates.py", words, baseline, *flags, space=space)
    assert context.judge.loss == ("sum" if divides else "mean")
    assert context.space.domains["batch_size"] == (16, 64)


@pytest.mark.parametrize("loss", ["mean", "sum"])
def test_a_sum_over_the_samples_is_told_from_a_mean_by_its_first_value(tmp_path, loss):
    def words(config):
        return ("--loss", loss, "--batch-size", str(batch_of(config)))

    offered, flag = f"{BOTH}batch_size: [16, 64]\n", Flag("batch_size", "--batch-size")
    space = planned(tmp_path, "classifies.py", words, OWN, flag, space=offered).space
    assert space.domains["amp_dtype"] == (None, "bfloat16")
    assert space.domains["batch_size"] == ((16, 64) if loss == "mean" else (16,))
    reasons = [note for note in space.notes if note.startswith("batch_size stays 16: ")]
    assert len(reasons) == (loss == "sum")
    for reason in reasons:
        assert "with batch_size=64, so it is not a per-sample mean" in reason


def test_a_script_that_seeds_itself_is_compared_by_trainings_that_differ_by_chance(tmp_path):
    done = succeeded(search(tmp_path, "classifies.py", "--", "--seed", "3"))
    accuracy = answer(tmp_path).constraints.accuracy
    assert accuracy.metric == "training_loss"
    assert accuracy.seeds >= 3
    assert accuracy.difference_ci90 is not None
    probes = [path.name for path in tmp_path.glob("studies/train/trials/accuracy/*-seed*")]
    found = [name.rpartition("-")[2] for name in probes]
    assert {"seed0", "seed1", "seed2"} <= set(found)
    assert f"metric      {accuracy.compared_by}" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("breaks", "space", "reason"),
    [
        ("nan", BOTH, "rejected: a parameter of the model became NaN or infinite"),
        ("gross", BOTH, "the first losses differ from the unchanged script's by"),
        (
            "still",
            "optimizer_impl: [null, fused]\n",
            "the length of the first steps differs from the unchanged script's by 100 %",
        ),
    ],
)
def test_a_setting_that_breaks_training_is_infeasible(tmp_path, breaks, space, reason):
    done = succeeded(search(tmp_path, "classifies.py", "--", "--breaks", breaks, space=space))
    assert answer(tmp_path).keeps_baseline
    assert reason in done.stdout + done.stderr


def test_exact_settings_alone_are_tried_if_asked_for(tmp_path):
    words = ("--exact-only", "--dry-run")
    done = search(tmp_path, "classifies.py", *words, space=f"{BOTH}num_workers: [0, 1]\n")
    assert done.returncode == 0, done.stderr
    assert "amp_dtype stays null: it changes rounding: --exact-only" in done.stderr
    assert "as --exact-only asks" in done.stderr
