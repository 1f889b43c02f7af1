"""`autotune run`: scripts that nobody changed, in real processes."""

import shutil
from importlib.metadata import version

import pytest

from asked_scripts import Ask
from autotune.configuration.best_config import read_best, write_best
from autotune.configuration.job import Measure, MeasurePlan
from autotune.process.runner import SubprocessRunner
from autotune.values.outcome import Measured
from children import autotune, succeeded
from factories import best_config, written
from tiers import late
from tuned_scripts import BASELINE, SCRIPTS, best, plan_of, report_of, run

NUMERICS = {"amp_dtype": "bfloat16", "channels_last": True, "optimizer_impl": "fused"}


def test_the_training_loader_gets_the_settings_and_the_report_says_so(tmp_path):
    settings = {"num_workers": 1, "num_threads": 1, **NUMERICS}
    settings["batch_size"] = 32
    done = succeeded(run(tmp_path, SCRIPTS / "plain_loop.py", "--batch-size", "8", **settings))
    assert done.stdout.startswith("epoch 0 accuracy 0.")
    assert "batch size 8, workers 1" in done.stderr
    report = report_of(done)
    assert report[0].startswith("applied: num_workers=1, prefetch_factor=2")
    assert "num_threads=1" in report[0]
    assert report[1:] == []
    first, *left_out = plan_of(done)
    assert first.startswith("applying: num_workers=1, prefetch_factor=2")
    assert left_out == [
        "not applying: batch_size=32 (needs --map batch_size=--FLAG)",
        "not applying: amp_dtype=bfloat16, channels_last=true, optimizer_impl=fused "
        "(needs --allow-numerics)",
    ]
    assert done.stderr.index("not applying: ") < done.stderr.index("batch size 8, workers 1")


def test_numerics_come_in_where_they_are_allowed_and_batch_sizes_by_a_flag(tmp_path):
    settings = {"batch_size": 32, **NUMERICS}
    options = ("--map", "batch_size=--batch-size", "--allow-numerics")
    done = run(tmp_path, *options, SCRIPTS / "plain_loop.py", "--batch-size=4", **settings)
    assert "batch size 32, workers 0" in done.stderr
    (applied,) = report_of(done)
    assert "batch_size=32 (by --batch-size)" in applied
    assert all(f"{name}=" in applied for name in NUMERICS)


def test_settings_that_the_script_makes_itself_are_left_to_it_and_named(tmp_path):
    """In a folder that cannot be written: root may do so all the same, so it is looked into."""
    folder = tmp_path / "read only"
    folder.mkdir()
    shutil.copy(SCRIPTS / "goes_its_own_way.py", folder / "train.py")
    folder.chmod(0o555)
    settings = {"num_threads": 2, "amp_dtype": "bfloat16", "optimizer_impl": "fused"}
    path = best(tmp_path, **settings)
    done = autotune(folder, "run", path, "--allow-numerics", "train.py")
    folder.chmod(0o755)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    assert [entry.name for entry in folder.iterdir()] == ["train.py"]
    report = report_of(done)
    assert "amp_dtype=bfloat16" in report[0]
    assert report[1:] == [
        "overridden by the script: optimizer_impl=forloop instead of fused",
        "overridden by the script: num_threads=1 instead of 2",
    ]


def test_only_loaders_of_training_and_those_built_by_the_same_calls_get_the_settings(tmp_path):
    """Others are begun with gradients enabled, too, before the first step and after it.

    One that is built in a new place is known only after its first epoch, by that place.
    """
    settings = {"num_workers": 1, "persistent_workers": True}
    done = run(tmp_path, SCRIPTS / "phases.py", batch_size=8, **settings)
    assert done.stdout == "[[1, 1], [0, 1], [1, 1]] 0 0 2\n", done.stderr
    (applied,) = report_of(done)
    assert applied.startswith("applied: num_workers=1, prefetch_factor=2, persistent_workers=true")


@pytest.mark.parametrize("where", ["", late("in a list")])
def test_changes_between_epochs_reach_the_training_as_without_autotune(where, tmp_path):
    settings = {"num_workers": 1, "persistent_workers": True}
    done = run(tmp_path, SCRIPTS / "curriculum.py", where, **settings)
    assert done.stdout == "[0.0, 0.0, 1.0, 2.0]\n", done.stderr
    applied, refused, *_ = report_of(done)
    assert applied.startswith("applied: num_workers=1")
    assert "persistent_workers" not in applied
    assert refused.startswith("not applied: persistent_workers=true (the script changes its data")


def test_a_stream_keeps_its_workers_and_nothing_is_said_to_be_overridden(tmp_path):
    script = tmp_path / "train.py"
    text = (SCRIPTS / "stream_loop.py").read_text()
    script.write_text(text.replace("100_000", "1_000"))
    done = run(tmp_path, script, num_workers=2)
    applied, refused = report_of(done)
    assert applied == "applied: only PyTorch's defaults"
    assert refused == (
        "not applied: num_workers=2, prefetch_factor=2 (the dataset is an IterableDataset, and "
        "each worker might load all of it)"
    )


def test_a_flag_that_the_script_takes_for_something_else_is_not_said_to_be_applied(tmp_path):
    maps = ("--map", "batch_size=--seed", "--map", "num_workers=--samples")
    script = SCRIPTS / "plain_loop.py"
    applied, *others = report_of(run(tmp_path, *maps, script, batch_size=32, num_workers=64))
    assert "by --" not in applied
    assert others == [
        "not applied: batch_size=32 by --seed (the script runs with 16)",
        "not applied: num_workers=64 by --samples (the script runs with 0)",
        "not applied: prefetch_factor=2 (the loader has num_workers=0)",
    ]


def test_a_default_is_applied_where_the_script_was_found_with_something_else(tmp_path):
    own = BASELINE.replace(float32_matmul_precision="high", optimizer_impl="fused")
    path = tmp_path / "best.yaml"
    write_best(best_config(BASELINE, own), path)
    script = tmp_path / "train.py"
    shutil.copy(SCRIPTS / "plain_loop.py", script)
    own_kernel = script.read_text().replace("lr=1e-3", "lr=1e-3, fused=True")
    script.write_text(own_kernel)
    applied, overridden = report_of(autotune(tmp_path, "run", path, "--allow-numerics", script))
    assert "float32_matmul_precision=highest" in applied
    assert overridden == "overridden by the script: optimizer_impl=fused instead of null"
    assert plan_of(autotune(tmp_path, "run", path, script)) == [
        "not applying: float32_matmul_precision=highest, optimizer_impl=null "
        "(needs --allow-numerics)"
    ]


@pytest.mark.parametrize("what", ["in place", "a function"])
def test_bfloat16_is_read_back_where_the_script_compiles_itself(tmp_path, what):
    words = ("--allow-numerics", SCRIPTS / "compiles.py", what)
    done = succeeded(run(tmp_path, *words, amp_dtype="bfloat16"))
    applied, *others = report_of(done)
    if what == "a function":
        assert others == [
            "not applied: amp_dtype=bfloat16 (the script calls its model only inside code that it "
            "compiles)"
        ]
    else:
        assert "amp_dtype=bfloat16" in applied
        assert not others


def test_workers_that_cannot_be_started_are_taken_back(tmp_path):
    script = tmp_path / "unpicklable.py"
    script.write_text(
        "from torch.utils.data import DataLoader\n"
        "data = list(range(4))\n"
        "loader = DataLoader(data, multiprocessing_context=None, collate_fn=lambda b: b)\n"
        "import multiprocessing; multiprocessing.set_start_method('spawn')\n"
        "if __name__ == '__main__':\n"
        "    print(len(list(loader)), loader.num_workers)\n"
    )
    done = run(tmp_path, script, num_workers=1)
    assert (done.returncode, done.stdout) == (0, "4 0\n"), done.stderr
    assert any("not applied: num_workers=1" in line for line in report_of(done))


def test_a_script_that_workers_would_run_again_gets_none(tmp_path):
    lines = (
        "import multiprocessing; multiprocessing.set_start_method('spawn')",
        "from torch.utils.data import DataLoader",
        "print(len(list(DataLoader(list(range(4))))), __name__)",
    )
    script = written(tmp_path, "\n".join(lines), "train.py")
    done = run(tmp_path, script, num_workers=1)
    assert (done.returncode, done.stdout) == (0, "4 __main__\n"), done.stderr
    refused = "not applied: num_workers=1, prefetch_factor=2 (workers would run the whole"
    assert any(line.startswith(refused) for line in report_of(done))


def test_a_script_that_looks_whether_there_is_torch_gets_its_settings(tmp_path):
    script = tmp_path / "looks_first.py"
    script.write_text(
        "import importlib.util\n"
        "assert importlib.util.find_spec('torch') is not None\n"
        "import torch\n"
        "print(torch.get_num_threads())\n"
    )
    done = run(tmp_path, script, num_threads=2)
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
    assert "num_threads=2" in report_of(done)[0]


def test_a_model_that_cannot_be_compiled_is_trained_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "/nonexistent")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "nothing compiled before"))
    script = SCRIPTS / "plain_loop.py"
    done = run(tmp_path, "--allow-numerics", script, compile_mode="default", channels_last=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("epoch 0 accuracy 0.")
    applied, refused, *_ = report_of(done)
    assert "channels_last=true" in applied
    assert "compile_mode" not in applied
    assert refused.startswith("not applied: compile_mode=default (InductorError: ")


def test_what_the_search_compiled_is_used_and_nothing_is_compiled_again(tmp_path, monkeypatch):
    """The trial's graphs are those of the run: no entry is added to torch's cache."""
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    words = ("--samples", "128", "--epochs")
    cache = tmp_path / "studies" / "tiny" / "inductor"
    settings = {"compile_mode": "default"}
    with SubprocessRunner(cache) as runner:
        asked = Ask(runner, tmp_path / "trial")
        task = Measure(MeasurePlan(block_counts=(3,), max_seconds=0.1))
        long = (*words, "10000")
        outcome = asked("plain_loop.py", *long, task=task, settings=settings, asked=(*settings,))
    assert isinstance(outcome, Measured), outcome
    graphs = {path for path in cache.rglob("*") if "fxgraph" in path.parts}
    assert graphs
    path = best(tmp_path, **settings)
    found = read_best(path)
    here = found.machine.model_copy(update={"torch": version("torch")})
    write_best(found.model_copy(update={"machine": here}), path)
    flags = ("run", "--allow-numerics", path, SCRIPTS / "plain_loop.py", *words, "8")
    done = succeeded(autotune(tmp_path, *flags))
    assert "looking for compiled code in studies/tiny/inductor" in done.stderr
    assert "applied: compile_mode=default" in done.stderr
    assert {one for one in cache.rglob("*") if "fxgraph" in one.parts} == graphs
    other = found.machine.model_copy(update={"torch": "2.1.0"})
    write_best(found.model_copy(update={"machine": other}), path)
    printed = autotune(tmp_path, "run", "--print-command", *flags[1:])
    assert "TORCHINDUCTOR_CACHE_DIR" not in printed.stdout
    assert "compiling again: the code that the search compiled" in printed.stderr
    assert "is for torch 2.1.0" in printed.stderr
