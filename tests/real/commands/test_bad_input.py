"""A message says what is wrong, where and what to do; the exit code tells the kind.

Most commands run in this process by the same `main`, and their children are forked from one host:
a new interpreter for each takes a second, and importing torch in each takes three.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from children import WORKLOADS, autotune, model_of
from command_line import command
from covering import covers
from factories import written
from tiers import late

USAGE, WORKLOAD, NOTHING_FEASIBLE = 2, 4, 3
MISSING = "import no_such_module"
SAMPLES = "full = build_dataset\ndef build_dataset():\n    return plain.TensorDataset(*full()[:{}])"


def refused(done, code):
    """The message of a command that ended as it should; nothing is on stdout."""
    assert "Traceback" not in done.err
    assert (done.code, done.out) == (code, ""), done.err
    return done.err


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def refused_search(one_host, tmp_path):
    """The message of a search that must not start, and leaves no answer."""

    def search(workload, *flags, code=WORKLOAD):
        message = refused(command("search", WORKLOADS / f"{workload}.py", *flags), code)
        assert not list(tmp_path.rglob("best.yaml"))
        return message

    return search


@pytest.fixture
def refused_model(refused_search, tmp_path):
    """The message of a search of a model.py that is `plain.py`, but for some lines."""

    def search(lines, *flags):
        return refused_search(model_of(tmp_path, lines).with_suffix(""), *flags)

    return search


@covers("C10")
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--trials", "0"], ["--trials", "0 is not in the range"]),
        (["--trails", "3"], ["No such option", "--trials"]),
        (["--time-budget", "10"], ["--time-budget", "'10'", "90s, 10m or 1.5h"]),
        (["--memory-limit", "2,5GB"], ["--memory-limit", "'2,5GB'", "16GB, 512MiB"]),
        (["--memory-limit", "120%"], ["--memory-limit", "16GB, 512MiB or 92%"]),
        (["--accuracy-tolerance", "-1%"], ["--accuracy-tolerance", "1% or 0.01"]),
        (["--target-samples", "0"], ["--target-samples", "0 is not in the range"]),
        (["--target-samples", "9", "--target-epochs", "9"], ["--target-epochs", "only one"]),
        (["--baseline", "batch_sise=8"], ["unknown setting 'batch_sise'", "batch_size"]),
        (["--baseline", "batch_size=0"], ["batch_size=0", "from 1 to"]),
        (
            ["--baseline", "num_workers=0,prefetch_factor=4"],
            ["prefetch_factor=4 contradicts", "prefetch_factor=null"],
        ),
        (["--seed", "99999999999"], ["--seed", "is not in the range"]),
        (["--baseline", "batch_size"], ["'batch_size' is not a setting", "batch_size=64"]),
        (["--space", "quik"], ["--space 'quik'", "Did you mean 'quick'?"]),
        (["--space", "absent.yaml"], ["absent.yaml"]),
    ],
)
def test_a_wrong_flag_is_named_with_what_to_write_instead(flags, words, refused_search):
    message = refused_search("plain", *flags, code=USAGE)
    for word in words:
        assert word in message


@covers("U1")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("absent.py", ["absent.py does not exist. Name your training script", "autotune init"]),
        ("folder.py", ["folder.py is not a Python file"]),
        ("notes.txt", ["notes.txt is not a Python file"]),
    ],
)
def test_a_path_that_is_no_workload_is_refused(name, words, tmp_path):
    (tmp_path / "folder.py").mkdir()
    written(tmp_path, "", "notes.txt")
    message = refused(command("search", name), USAGE)
    for word in words:
        assert word in message
    assert not (tmp_path / "studies").exists()


@pytest.mark.parametrize("words", [("--epochs", "90"), ("resnet50",), ("--model=resnet50",)])
def test_a_word_for_the_script_without_dashes_is_told_its_place(words, tmp_path):
    script = written(tmp_path, "", "train.py")
    for name in ("search", "profile"):
        message = refused(command(name, script, *words), USAGE)
        assert "Arguments of the script go after --: " in message
        assert f"{name} train.py -- {words[0].partition('=')[0]}" in message


def test_all_faults_of_a_search_space_are_named_at_once_with_their_places(refused_search, tmp_path):
    space = written(tmp_path, "batch_sise: [8]\nnum_workers: [0, -1]\namp_dtype: [float12]\n")
    message = refused_search("plain", "--space", str(space), code=USAGE)
    places = re.findall(rf"{re.escape(str(space))}:(\d+):(\d+): ", message)
    assert places == [("1", "1"), ("2", "18"), ("3", "13")]
    assert "batch_size" in message, "the right spelling"


def test_a_device_that_is_not_there_is_a_wrong_flag(refused_search):
    message = refused_search("plain", "--device", "cuda:9", code=USAGE)
    assert "--device cuda:9" in message


def test_a_floor_for_accuracy_needs_evaluate(refused_search):
    message = refused_search("stream", "--min-accuracy", "0.5", code=USAGE)
    assert "--min-accuracy 0.5" in message
    assert "define evaluate(model, device)" in message


@covers("U2")
def test_a_syntax_error_is_shown_with_a_caret_under_its_place(tmp_path):
    model = written(tmp_path, "import torch\n\nif True:\n    x = (1 +* 2)\n", "model.py")
    message = refused(command("search", model), WORKLOAD)
    assert f"{model}:4: SyntaxError: invalid syntax" in message
    lines = message.splitlines()
    (caret,) = [number for number, line in enumerate(lines) if line.strip() == "^"]
    assert lines[caret - 1].strip() == "x = (1 +* 2)"
    assert lines[caret - 1][lines[caret].index("^")] == "*"


@covers("U3", "U4", "U9")
@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (MISSING, ["model.py:5", "No module named 'no_such_module'", f"(by {sys.executable})"]),
        (
            "def build_modle(): ...\ndef evalute(model, device): ...\ndel build_model, evaluate",
            ["model.py", "build_model()", "build_modle", "evalute", "evaluate"],
        ),
        ("build_model = lambda: 'linear'", ["build_model returned str, not an nn.Module"]),
        ("build_dataset = lambda: 256", ["model.py", "build_dataset returned int"]),
        (SAMPLES.format(0), ["model.py", "empty dataset"]),
        (
            "import sys\ndef build_model():\n    sys.exit('no licence found')",
            ["model.py:7", "sys.exit('no licence found')"],
        ),
        ("import os\nbuild_model = lambda: os._exit(7)", ["exited with code 7"]),
    ],
)
def test_a_workload_that_cannot_be_built_ends_the_search(lines, words, refused_model):
    message = refused_model(lines)
    for word in [*words, "stderr.log"]:
        assert word in message


@covers("R15", "U5", "U6", "U7")
@pytest.mark.parametrize(
    ("workload", "words"),
    [
        ("loss_is_vector", ["loss_is_vector.py", "scalar", "shape (8,)"]),
        ("wrong_shapes", ["wrong_shapes.py:14", "mat1 and mat2 shapes"]),
        ("nan_loss", ["the loss became nan"]),
        ("unpicklable", ["cannot be sent to DataLoader workers", "top level of the file"]),
    ],
)
def test_a_workload_that_cannot_train_as_it_is_ends_the_search(workload, words, refused_search):
    message = refused_search(workload)
    for word in [*words, "fails with your own settings", "Correct the file", "stderr.log"]:
        assert word in message


@covers("U7")
def test_a_dataset_that_is_smaller_than_a_batch_ends_the_search(refused_model):
    message = refused_model(SAMPLES.format(5))
    for word in ("model.py", "5 samples", "Choose a smaller batch_size"):
        assert word in message


@pytest.mark.parametrize(
    ("workload", "flags", "reason"),
    [
        ("device_hog", ["--baseline", "batch_size=64"], "out of device memory"),
        late("stubborn", ["--trial-timeout", "3s"], "no result within 3 s"),
    ],
)
def test_without_anything_feasible_there_is_no_file(workload, flags, reason, one_host, tmp_path):
    done = command("search", WORKLOADS / f"{workload}.py", *flags)
    assert done.code == NOTHING_FEASIBLE
    assert "Every trial was rejected, your own settings included; best.yaml was" in done.out
    assert f"your settings: {reason}" in done.out
    assert not list(tmp_path.rglob("best.yaml"))


@pytest.mark.keeps_log
def test_the_log_that_a_dry_run_names_can_be_read(refused_model):
    message = refused_model(MISSING, "--dry-run")
    log = re.search(r"Whole log: (.+)", message)
    assert "no_such_module" in Path(log[1]).read_text()


def test_a_workload_that_hangs_while_it_is_built_is_given_up_in_time(refused_search):
    message = refused_search("hangs", "--trial-timeout", "2s")
    assert "no result within 2 s" in message


@covers("T15")
def test_rubbish_on_stdout_never_reaches_the_terminal(tmp_path):
    """In a process of its own, whose children inherit its descriptors."""
    done = autotune(tmp_path, "search", WORKLOADS / "noisy.py", "--dry-run")
    assert done.returncode == 0
    assert done.stdout == ""
    assert "\x1b" not in done.stderr
    assert len(done.stderr) < 10_000


@covers("X4")
def test_init_does_not_overwrite_a_file(tmp_path):
    model = written(tmp_path, "mine", "model.py")
    message = refused(command("init", model), USAGE)
    assert "--force" in message
    assert model.read_text() == "mine"


def test_the_command_also_works_as_installed(tmp_path):
    command = shutil.which("autotune", path=str(sys.prefix) + "/bin")
    assert command is not None
    done = subprocess.run([command, "search", "absent.py"], cwd=tmp_path, check=False)
    assert done.returncode == USAGE
