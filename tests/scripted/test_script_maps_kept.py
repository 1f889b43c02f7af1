"""What a search of a script leaves for later: maps in best.yaml, trials to begin with."""

import re
import shutil
from contextlib import chdir
from importlib.metadata import version
from pathlib import Path

import pytest

from autotune.commands import execute
from autotune.configuration.best_config import read_best, write_best
from autotune.configuration.mismatch import digests_of_arguments, sha256_of
from autotune.configuration.training_config import TrainingConfig
from autotune.values.outcome import Inspected
from children import hurried, succeeded
from command_line import command, told
from factories import best_config, cpu_machine, written
from scripted_runner import SEEN, ScriptedRunner, at
from scripted_runner import SEEN_SETTINGS as OWN
from tuned_scripts import SCRIPTS, best

USAGE = 2


@pytest.fixture
def path(tmp_path):
    """A best.yaml of a script in this folder, which was searched with a map and changed."""
    script = Path(shutil.copy(SCRIPTS / "plain_loop.py", tmp_path / "train.py"))
    path = best(tmp_path, batch_size=32)
    answer = read_best(path)
    found = answer.provenance.model_copy(
        update={
            "model": str(script),
            "model_sha256": sha256_of(script),
            "maps": ("batch_size=--batch-size",),
        }
    )
    write_best(answer.model_copy(update={"provenance": found}), path)
    return path


def changed(path, **settings):
    """Rewrite an answer with more settings, and a quality that covers changed arithmetic."""
    answer = read_best(path)
    accuracy = answer.constraints.accuracy.model_copy(update={"compared_by": "training loss"})
    update = {
        "config": TrainingConfig.of({**answer.config, **settings}).as_dict(),
        "constraints": answer.constraints.model_copy(update={"accuracy": accuracy}),
    }
    write_best(answer.model_copy(update=update), path)


BF16 = "amp_dtype:bfloat16=--bf16"
PASSED = "train.py --batch-size 32"
KEEPS = "applying only settings that preserve results"


@pytest.mark.parametrize(
    ("words", "ends", "said"),
    [
        ("train.py", PASSED, ""),
        ("again.py", "again.py --batch-size 32", ""),
        ("--map batch_size=--bs train.py", "train.py --bs 32", ""),
        (
            "train.py --batch-size 8",
            PASSED,
            "applying: batch_size=32 by --batch-size instead of your 8\n",
        ),
        ("train.py --batch-size 32", PASSED, "applying: batch_size=32 by --batch-size\n"),
        (
            "other.py",
            "other.py",
            f"autotune: the settings are for train.py, not for other.py: {KEEPS}\n"
            "autotune: not applying: batch_size=32 (needs --map batch_size=--batch-size)\n",
        ),
    ],
)
def test_a_run_of_the_measured_script_or_a_copy_passes_the_setting(path, words, ends, said):
    source = (path.parent / "train.py").read_text()
    written(path.parent, source, "again.py")
    written(path.parent, source + "# another\n", "other.py")
    shown = told(path.parent, "run", "--print-command", path, *words.split())
    assert shown.out.strip().endswith(ends), shown.out + shown.err
    assert said in shown.err


def test_a_run_takes_no_flags_of_a_family_that_no_search_has_measured(tmp_path, path):
    """A search measures mixed precision by autocast around the model, not by the script's flag."""
    changed(path, amp_dtype="bfloat16")
    refused = command("run", path, "--preset", "hf", "--print-command", tmp_path / "train.py")
    assert refused.code == USAGE
    assert "No such option '--preset'" in refused.err
    shown = told(tmp_path, "run", "--print-command", path, "train.py")
    assert shown.out.strip().endswith(PASSED), shown.out + shown.err
    assert "applying: amp_dtype=bfloat16, batch_size=32 by --batch-size\n" in shown.err
    shown = told(tmp_path, "run", "--print-command", "--map", BF16, path, "train.py")
    assert shown.out.strip().endswith("train.py --bf16 --batch-size 32"), shown.err
    assert (
        "applying: amp_dtype=bfloat16 by --bf16 (which the search did not measure), "
        "batch_size=32 by --batch-size\n"
    ) in shown.err
    written(tmp_path, "# another\n", "other.py")
    shown = told(tmp_path, "run", "--print-command", "--map", "batch_size=--bs", path, "other.py")
    assert shown.out.strip().endswith("other.py --bs 32"), shown.err
    assert f"{KEEPS} and batch_size by --bs" in shown.err


def test_a_script_that_changed_gets_what_keeps_the_arithmetic_and_hears_why(tmp_path, path):
    script = tmp_path / "train.py"
    script.write_text(script.read_text() + "# another\n")
    shown = told(tmp_path, "run", "--print-command", path, script)
    assert shown.out.strip().endswith("train.py"), shown.err
    assert f"{script} has changed since the search: applying only" in shown.err
    assert "not applying: batch_size=32 (needs --allow-numerics)" in shown.err
    shown = told(tmp_path, "run", "--print-command", "--allow-numerics", path, script)
    assert shown.out.strip().endswith(PASSED), shown.err


def test_compiled_code_is_named_only_where_the_search_compiled_something(
    tmp_path, path, monkeypatch
):
    words, cache_of = ("run", "--print-command", path, "train.py"), "TORCHINDUCTOR_CACHE_DIR"
    monkeypatch.delenv(cache_of, raising=False)
    answer, cache = read_best(path), tmp_path / "studies" / "tiny" / "inductor"
    here = answer.machine.model_copy(update={"torch": version("torch")})
    write_best(answer.model_copy(update={"machine": here}), path)
    cache.mkdir(parents=True)
    eager = told(tmp_path, *words)
    assert cache_of not in eager.out
    assert not re.search("compiled code|compiling again", eager.err)
    changed(path, compile_mode="default")
    nothing = told(tmp_path, *words)
    assert cache_of not in nothing.out
    assert f"({cache.relative_to(tmp_path)}) is not here" in nothing.err
    written(cache, "", "graph")
    compiled = told(tmp_path, *words)
    assert cache_of in compiled.out
    assert "looking for compiled code in" in compiled.err


def test_settings_that_are_kept_are_not_passed(tmp_path, path):
    changed(path, **read_best(path).evidence.baseline.config)
    shown = told(tmp_path, "run", "--print-command", path, "train.py", "--batch-size", "64")
    assert shown.out.strip().endswith("train.py --batch-size 64"), shown.out + shown.err


def test_a_training_of_other_arguments_gets_no_batch_size_that_was_not_measured(tmp_path, path):
    answer = read_best(path)
    measured = digests_of_arguments(answer, ["--samples", "64", "--batch-size", "16"])
    found = answer.provenance.model_copy(update=measured)
    write_best(answer.model_copy(update={"provenance": found}), path)
    run = ("run", "--print-command", path, "train.py")
    shown = told(tmp_path, *run, "--samples", "64")
    assert shown.out.strip().endswith("train.py --samples 64 --batch-size 32"), shown.err
    shown = told(tmp_path, *run, "--samples", "9")
    assert shown.out.strip().endswith("train.py --samples 9"), shown.err
    assert "train.py was measured with other arguments (--samples): applying only" in shown.err


def test_a_key_that_the_scripts_file_has_lost_is_named_before_a_comparison(
    tmp_path, path, monkeypatch
):
    answer = read_best(path)
    maps = ("batch_size=--config:train.batch_size",)
    found = answer.provenance.model_copy(update={"maps": maps})
    write_best(answer.model_copy(update={"provenance": found}), path)
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "train:\n  batchsize: 16\n", "conf.yaml")
    done = command("compare", "train.py", path, "--require-faster", "--", "--config", "conf.yaml")
    assert (done.code, done.out) == (USAGE, "")
    assert done.err.splitlines()[-1] == (
        "autotune: train.py is run as a training script: --map batch_size=--config:"
        "train.batch_size: conf.yaml has no key train.batch_size with a single value. Did you mean "
        "'train.batchsize'?"
    )


@pytest.mark.long
def test_a_search_writes_what_it_mapped_by_itself(tmp_path):
    shutil.copy(SCRIPTS / "classifies.py", tmp_path / "train.py")
    space = written(tmp_path, "batch_size: [16, 64]\n")
    succeeded(hurried(tmp_path, "search", "train.py", "--space", space, "--trials", "2", "--"))
    found = read_best(tmp_path / "studies" / "train" / "best.yaml").provenance
    assert found.maps == ("batch_size=--batch-size",)


SPACE = "num_workers: [0, 1, 2, 3, 4, 5, 6]\nnum_threads: [1, 2]\n"


def five_workers_are_best(config, _):
    return at(200 - 10 * abs(5 - int(config["num_workers"] or 0)))


class Processes(ScriptedRunner):
    """A runner in the place of real processes."""

    def __init__(self):
        super().__init__(five_workers_are_best, observed=SEEN)
        self.inspected = Inspected(cpu_machine(cores=8), None)

    @property
    def trials(self):
        """The jobs of the trials, less the baseline's."""
        asked = zip(self.jobs, self.asked, strict=True)
        return [job for job, one in asked if one.phase == "trial"]


@pytest.fixture
def folder(tmp_path):
    written(tmp_path, "raise SystemExit('ran')\n", "train.py")
    written(tmp_path, SPACE)
    return tmp_path


def search(folder, monkeypatch, *words):
    monkeypatch.setattr(execute, "SubprocessRunner", runner := Processes())
    with chdir(folder):
        done = command("search", "train.py", "--space", "space.yaml", "--trials", "4", *words)
    assert done.code == 0, done.err
    return done, runner


def test_the_best_of_an_older_study_of_the_script_comes_first(folder, monkeypatch):
    search(folder, monkeypatch, "--study", "older", "--trials", "14")
    older = read_best(folder / "studies" / "older" / "best.yaml").training_config
    assert older["num_workers"] == 5
    words = ("--study", "newer", "--warm-start", "studies/older/best.yaml")
    _, runner = search(folder, monkeypatch, *words)
    first = runner.trials[0]
    assert first.config is not None
    assert first.config["num_workers"] == 5
    assert first.script is not None
    assert "num_workers" in first.script.asked


def test_of_an_answer_for_a_model_py_that_is_tried_which_reaches_the_script(folder, monkeypatch):
    own = TrainingConfig.of({**OWN, "batch_size": 32})
    found = own.replace(batch_size=256, num_workers=5, amp_dtype="bfloat16")
    write_best(best_config(found, own), folder / "best.yaml")
    _, runner = search(folder, monkeypatch, "--warm-start", "best.yaml")
    first = runner.trials[0].config
    assert (first["num_workers"], first["batch_size"], first["amp_dtype"]) == (5, 16, None)
