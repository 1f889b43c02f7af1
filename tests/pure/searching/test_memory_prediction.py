"""Memory that a batch size will take, from those that were measured."""

from autotune.searching.trials.memory_prediction import expected_bytes


def test_memory_grows_along_the_line_through_what_was_measured():
    assert expected_bytes([(16, 1600), (32, 2600)], 64) == 4600


def test_one_batch_size_makes_no_line():
    assert expected_bytes([(16, 1600), (16, 1700)], 64) is None


def test_nothing_is_foretold_far_beyond_what_was_measured():
    assert expected_bytes([(16, 1600), (32, 2600)], 256) is None


def test_nothing_is_foretold_of_sizes_that_were_measured_or_lie_between():
    assert expected_bytes([(16, 1600), (64, 2600)], 32) is None


def test_sizes_that_do_not_lie_on_a_line_give_a_lower_prediction():
    straight = expected_bytes([(16, 1600), (32, 2600), (48, 3600)], 64)
    crooked = expected_bytes([(16, 1600), (32, 2000), (48, 3600)], 64)
    assert straight == 4600
    assert crooked is not None
    assert crooked < straight
