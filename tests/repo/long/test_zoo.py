"""Scripts of the zoo, unchanged: each is seen to train, searched by one command, and judged."""

import re
from pathlib import Path

import pytest

from autotune.configuration.best_config import read_best
from children import hurried, succeeded
from factories import written
from needs import installed

ROOT = Path(__file__).parents[3]
ZOO = ROOT / "benchmarks" / "zoo" / "scripts"
NO_LOADER = "no torch DataLoader feeds training"


@pytest.mark.parametrize(
    ("name", "arguments", "package", "seen"),
    [
        ("memory_map", (), "torch", [NO_LOADER]),
        ("by_hand", (), "torch", [NO_LOADER, "updates its weights without a torch optimizer"]),
        ("accelerate_loop", ("--cpu",), "accelerate", ["feeds training"]),
        ("lightning_module", (), "lightning", ["feeds training"]),
    ],
)
def test_a_script_of_the_zoo_is_searched_by_one_command(name, arguments, package, seen, tmp_path):
    if package != "torch":
        installed(package)
    space = written(tmp_path, "amp_dtype: [null, bfloat16]\nnum_threads: [1, 2]\n")
    options = ("--space", space, "--trials", "2")
    done = succeeded(hurried(tmp_path, "search", ZOO / f"{name}.py", *options, "--", *arguments))
    assert "did not take effect" not in done.stderr
    assert "quality metric: its training loss" in done.stderr
    for words in seen:
        assert words in done.stderr
    best = read_best(tmp_path / "studies" / name / "best.yaml")
    # An LSTM in bfloat16 needs a processor with instructions for it, or is refused, or slow.
    slow = r"amp_dtype=bfloat16.*(LSTM forward propagation primitive|no result within)"
    refused = name in ("memory_map", "by_hand") and re.search(slow, done.stderr)
    counts = (best.evidence.searched.measured, best.evidence.searched.failed)
    assert counts == ((0, 1) if refused else (1, 0)), done.stderr
