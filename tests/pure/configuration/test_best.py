"""best.yaml: written whole, read strictly."""

import re
import resource
import signal
from contextlib import contextmanager

import pytest
import yaml

from autotune.configuration.best_config import read_best, write_best
from autotune.configuration.training_config import TrainingConfig
from autotune.values.errors import UsageError
from covering import covers
from factories import best_config

BASELINE = TrainingConfig.of({"num_threads": 2})
FASTER = BASELINE.replace(batch_size=256, num_workers=2, amp_dtype="bfloat16", channels_last=True)


@pytest.fixture
def best():
    return best_config(FASTER, BASELINE)


@pytest.fixture
def path(tmp_path, best):
    write_best(best, tmp_path / "best.yaml")
    return tmp_path / "best.yaml"


@contextmanager
def full_disk():
    """No byte more may be written to any file: what a quota or a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def change(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return path


def faults(path):
    with pytest.raises(UsageError) as caught:
        read_best(path)
    return [line.removeprefix(f"{path.parent}/") for line in str(caught.value).splitlines()]


def line_of(path, word):
    lines = path.read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if word in line)


def test_a_written_answer_is_read_back(path, best):
    assert read_best(path) == best
    assert read_best(path).training_config == FASTER


def test_the_file_can_be_read_without_autotune(path):
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert list(document)[:4] == ["autotune", "config", "evidence", "constraints"]
    assert document["config"] == FASTER.as_dict()
    assert document["evidence"]["speedup"] == {"ratio": 1.5, "ci95": [1.45, 1.55], "rounds": 6}


def test_a_newer_format_is_refused_before_anything_else_is_looked_at(path):
    change(path, "autotune: 1\n", "autotune: 3\nsomething_new: 1\n")
    (fault,) = faults(path)
    assert fault.startswith("best.yaml:1:11: autotune: 3 is not the format that this version reads")


@pytest.mark.parametrize("version", ["0", "one", "null"])
def test_an_unknown_format_is_refused_with_its_place(path, version):
    (fault,) = faults(change(path, "autotune: 1\n", f"autotune: {version}\n"))
    assert fault.startswith("best.yaml:1:11: autotune: ")


@covers("C1")
def test_an_unknown_key_is_shown_with_its_place(path):
    change(path, "    rounds: 6", "    round: 6\n    rounds: 6")
    assert faults(path) == [
        f"best.yaml:{line_of(path, 'round: 6')}:5: evidence.speedup.round is not known. Remove it."
    ]


@covers("C10", "C13")
def test_settings_that_contradict_each_other_are_refused(path):
    change(path, "  num_workers: 2", "  num_workers: 0")
    assert faults(path) == [
        "best.yaml:5:20: prefetch_factor=2 contradicts the other settings, "
        "with which it must be null."
    ]


def test_a_missing_part_is_named(path):
    text = path.read_text(encoding="utf-8")
    path.write_text(re.sub(r"machine:\n(  .*\n)+", "", text), encoding="utf-8")
    assert faults(path) == ["best.yaml:1:1: machine: Field required."]


@covers("C2")
def test_all_faults_are_named_at_once_each_with_its_line(path):
    change(path, "    ratio: 1.5", "    ratio: fast")
    change(path, "  cores: 2", "  cores: 2.5")
    change(path, "  study: tiny", "  study: 5")
    assert [fault.split(":")[1] for fault in faults(path)] == [
        str(line_of(path, word)) for word in ("ratio: fast", "cores: 2.5", "study: 5")
    ]


def test_wrong_settings_are_named_beside_what_the_schema_refuses(path):
    change(path, "    ratio: 1.5", "    ratio: fast")
    change(path, "  num_workers: 2", "  num_workers: -2")
    said = "\n".join(faults(path))
    assert "evidence.speedup.ratio: Input should be a valid number" in said
    assert "num_workers=-2 is not possible" in said


def test_writing_replaces_an_older_answer_as_a_whole(path):
    write_best(best_config(BASELINE, BASELINE), path)
    assert read_best(path).keeps_baseline
    assert list(path.parent.iterdir()) == [path]


@covers("S6")
def test_an_older_answer_survives_when_the_new_one_cannot_be_written(path):
    before = path.read_bytes()
    with full_disk(), pytest.raises(OSError, match="File too large"):
        write_best(best_config(BASELINE, BASELINE), path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
