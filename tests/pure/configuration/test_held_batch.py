"""A search space that holds the effective batch: the batch sizes left, and what is refused."""

from random import Random

import numpy as np
import pytest

from autotune.configuration.search_space import find_space, narrow, read_space
from autotune.configuration.training_config import TrainingConfig
from autotune.context.options import WorkloadOptions
from autotune.sampling.encoding import Encoding, config_of, params_of
from autotune.values.errors import UsageError
from factories import IMAGE_FACTS, cpu_machine, drawn, written

SIZES = "batch_size: [8, 16, 32, 48, 64]\nnum_threads: [1, 2]\n"


def held(path, effective_batch, **baseline):
    settings = TrainingConfig.of({"num_threads": 1, **baseline})
    return narrow(read_space(path), cpu_machine(), IMAGE_FACTS, settings, effective_batch)


def pairs(space):
    found = {(c["batch_size"], c["accumulation_steps"]) for c in space.configurations()}
    return sorted(found)


def test_only_batch_sizes_that_divide_the_effective_batch_are_left(tmp_path):
    space = held(written(tmp_path, SIZES), 64, batch_size=64)
    assert pairs(space) == [(8, 8), (16, 4), (32, 2), (64, 1)]
    assert space.size == 8
    assert space.notes == (
        "effective batch 64: batch_size x accumulation_steps is 8 x 8, 16 x 4, 32 x 2, 64 x 1",
        "batch_size=48 dropped: not a divisor of the effective batch",
    )


def test_every_way_to_a_configuration_holds_the_effective_batch(tmp_path):
    space = held(written(tmp_path, SIZES), 64, batch_size=64)
    code, whole = Encoding(space), set(space.configurations())
    outside = TrainingConfig.of({"batch_size": 48, "accumulation_steps": 3, "num_threads": 1})
    own = space.within(outside)
    found = [drawn(space, Random(n)) for n in range(20)]
    found += [own, *space.neighbours(own), *map(code.config, code.every_row)]
    found += [code.config(row) for row in code.some_rows(50, Random(0))]
    found += [config_of(params_of(config, space.varied()), space) for config in whole]
    assert set(found) == whole
    assert {config.effective_batch for config in whole} == {64}


def test_no_configuration_of_one_effective_batch_is_suspected_of_fewer_updates(tmp_path):
    space = held(written(tmp_path, SIZES), 64, batch_size=8, accumulation_steps=8)
    code = Encoding(space)
    (own,) = code.rows([TrainingConfig.of({"batch_size": 8, "num_threads": 1})])
    assert not code.doublings(code.every_row, own).any()


def test_a_free_search_counts_doublings_of_the_effective_batch(tmp_path):
    path = written(tmp_path, "batch_size: [8, 16]\naccumulation_steps: [1, 4]\n")
    settings = TrainingConfig.of({"batch_size": 8, "num_threads": 1})
    code = Encoding(narrow(read_space(path), cpu_machine(), IMAGE_FACTS, settings))
    configs = [
        settings.replace(batch_size=b, accumulation_steps=k) for b in (8, 16) for k in (1, 4)
    ]
    rows = code.rows(configs)
    np.testing.assert_array_equal(code.doublings(rows, rows[0]), [0, 2, 1, 3])


def test_a_shipped_space_offers_smaller_batches_than_the_baselines():
    space = held(find_space("cuda"), 8, batch_size=8)
    assert pairs(space) == [(1, 8), (2, 4), (4, 2), (8, 1)]


def test_numbers_of_batches_that_the_space_offers_are_the_only_ones(tmp_path):
    path = written(tmp_path, "batch_size: [8, 16, 32, 64]\naccumulation_steps: [2, 4]\n")
    assert pairs(held(path, 64, batch_size=64)) == [(16, 4), (32, 2), (64, 1)]


def test_a_shipped_space_keeps_to_no_number_of_batches(tmp_path):
    text = "portable: true\nbatch_size: [8, 16]\naccumulation_steps: [1, 2]\n"
    space = held(written(tmp_path, text), 48, batch_size=16, accumulation_steps=3)
    assert (8, 6) in pairs(space)


def test_batch_sizes_that_do_not_make_up_the_kept_batch_are_named(tmp_path):
    space = held(written(tmp_path, "batch_size: [5, 8, 12]\n"), 16, batch_size=16)
    assert pairs(space) == [(8, 2), (16, 1)]
    assert "batch_size=5, 12 dropped: not a divisor of the effective batch" in space.notes


def test_an_effective_batch_beyond_the_dataset_is_refused(tmp_path):
    with pytest.raises(UsageError, match="20000: the dataset has 10000 samples"):
        held(written(tmp_path, SIZES), 20_000, batch_size=8)


@pytest.mark.parametrize(
    ("asked", "baseline", "expected"),
    [
        (None, (32, 1), None),
        (None, (32, 4), 128),
        ("free", (32, 4), None),
        ("keep", (32, 1), 32),
        (96, (32, 1), 96),
    ],
)
def test_a_baseline_that_accumulates_keeps_its_effective_batch_unless_told_otherwise(
    asked, baseline, expected, tmp_path
):
    size, count = baseline
    own = TrainingConfig.of({"batch_size": size, "accumulation_steps": count})
    options = WorkloadOptions(tmp_path / "model.py", effective_batch=asked)
    assert options.held_batch(own) == expected


def test_a_shipped_space_has_parts_and_multiples_of_a_batch_that_divide(tmp_path):
    """So that an accumulation of what would fit at once is given up."""
    text = "portable: true\nbatch_size: [8, 16, 32]\n"
    space = held(written(tmp_path, text), 24, batch_size=12, accumulation_steps=2)
    assert pairs(space) == [(3, 8), (6, 4), (8, 3), (12, 2), (24, 1)]
    space = held(written(tmp_path, text), 480, batch_size=12, accumulation_steps=40)
    assert (96, 5) in pairs(space)
