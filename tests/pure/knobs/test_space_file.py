"""Search spaces as written: what is read, and every way in which it can be wrong."""

import pytest

from autotune.configuration.search_space import find_space, read_space, shipped_spaces
from autotune.values.errors import UsageError
from covering import covers
from factories import written


def offers(folder, text):
    return dict(read_space(written(folder, text)).offers)


def faults(folder, text):
    """Return what is said about a file, less its folder."""
    with pytest.raises(UsageError) as caught:
        read_space(written(folder, text))
    return [line.removeprefix(f"{folder}/") for line in str(caught.value).splitlines()]


def test_a_list_is_read_in_its_order_with_the_types_of_its_values(tmp_path):
    text = "amp_dtype: [bfloat16, null]\npin_memory: [true]\nnum_workers: [4, 0]\n"
    read = offers(tmp_path, text)
    assert read == {"amp_dtype": ("bfloat16", None), "pin_memory": (True,), "num_workers": (4, 0)}
    assert read["pin_memory"][0] is True


@pytest.mark.parametrize(
    ("range_", "values"),
    [
        ("{low: 1, high: 10, step: 3}", (1, 4, 7, 10)),
        ("{low: 1, high: 9, step: 3}", (1, 4, 7)),
        ("{low: 2, high: 4}", (2, 3, 4)),
        ("{low: 8, high: 64, log2: true}", (8, 16, 32, 64)),
        ("{low: 8, high: 63, log2: true}", (8, 16, 32)),
        ("{low: 3, high: 12, log2: true}", (3, 6, 12)),
        ("{low: 5, high: 5, log2: true}", (5,)),
        ("{low: 1, high: 3, log2: false}", (1, 2, 3)),
    ],
)
def test_a_range_is_expanded_with_both_ends(tmp_path, range_, values):
    assert offers(tmp_path, f"batch_size: {range_}\n") == {"batch_size": values}


@covers("C1")
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "num_workres: [1]",
            "space.yaml:1:1: unknown setting 'num_workres'. Did you mean 'num_workers'?",
        ),
        ("protable: true", "space.yaml:1:1: unknown setting 'protable'. Did you mean 'portable'?"),
        ("xyz: [1]", "space.yaml:1:1: unknown setting 'xyz'."),
        (
            "num_workers: [0, two]",
            "space.yaml:1:18: num_workers='two' is not possible; "
            "expected an integer from 0 to 256.",
        ),
        (
            "num_workers: [0, true]",
            "space.yaml:1:18: num_workers=True is not possible; expected an integer from 0 to 256.",
        ),
        (
            "pin_memory: [0]",
            "space.yaml:1:14: pin_memory=0 is not possible; expected false or true.",
        ),
        (
            "batch_size: [8.0]",
            "space.yaml:1:14: batch_size=8.0 is not possible; "
            "expected an integer from 1 to 1048576.",
        ),
        ("num_workers: [2, 0, 2]", "space.yaml:1:21: num_workers=2 is listed twice."),
        (
            "num_workers: []",
            "space.yaml:1:14: num_workers needs a list with at least one value, or "
            "{low, high, step} or {low, high, log2: true}; got [].",
        ),
        (
            "num_workers: 4",
            "space.yaml:1:14: num_workers needs a list with at least one value, or "
            "{low, high, step} or {low, high, log2: true}; got 4.",
        ),
        ("about: 3", "space.yaml:1:8: about must be a sentence, not 3."),
        ("portable: yes", "space.yaml:1:11: portable must be true or false, not 'yes'."),
        (
            "num_workers: &a [1]",
            "space.yaml:1:14: an anchor, an alias or a tag. Write the plain value instead.",
        ),
    ],
)
def test_a_fault_is_shown_with_its_place(tmp_path, text, fault):
    assert faults(tmp_path, f"{text}\n") == [fault]


@covers("C11")
@pytest.mark.parametrize(
    ("range_", "said"),
    [
        ("{low: 4, high: 1}", "num_workers needs low <= high and step > 0"),
        ("{low: 1, high: 4, step: 0}", "num_workers needs low <= high and step > 0"),
        ("{low: 0, high: 4, log2: true}", "num_workers needs low <= high and step > 0"),
        ("{low: 0, high: 1000}", "at most 1000 values"),
        ("{low: 0}", "num_workers needs whole numbers low, high and step"),
        ("{low: 0, high: 2.5}", "num_workers needs whole numbers low, high and step"),
        ("{low: false, high: true}", "num_workers needs whole numbers low, high and step"),
        ("{low: 1, high: 4, log2: 1}", "num_workers needs whole numbers low, high and step"),
        ("{low: 1, high: 4, log2: true, step: 1}", "num_workers takes step or log2, not both."),
        ("{low: -1, high: 4}", "num_workers=-1 is not possible; expected an integer from 0 to"),
        ("{low: 0, high: 300}", "num_workers=300 is not possible; expected an integer from 0 to"),
    ],
)
def test_a_range_that_makes_no_sense_is_one_fault(tmp_path, range_, said):
    (fault,) = faults(tmp_path, f"num_workers: {range_}\n")
    assert fault.startswith("space.yaml:1:14: ")
    assert said in fault


def test_a_misspelt_word_in_a_range_is_answered_with_the_nearest_known_one(tmp_path):
    assert faults(tmp_path, "num_workers: {low: 0, high: 4, stepp: 2}\n") == [
        "space.yaml:1:32: unknown word 'stepp' in a range. Did you mean 'step'?"
    ]


@covers("C2")
def test_all_faults_of_a_file_are_named_at_once_each_on_its_line(tmp_path):
    text = (
        "about: 1\nbatchsize: [1]\nnum_workers: [-1, 2, 2]\npin_memory: []\nnum_threads: {a: 1}\n"
    )
    places = [fault.split(": ", 1)[0] for fault in faults(tmp_path, text)]
    assert places == [
        *("space.yaml:1:8", "space.yaml:2:1", "space.yaml:3:15", "space.yaml:3:22"),
        *("space.yaml:4:13", "space.yaml:5:15", "space.yaml:5:14"),
    ]


@pytest.mark.parametrize("name", shipped_spaces())
def test_a_shipped_space_is_valid_and_says_what_it_is_for(name):
    file = read_space(find_space(name))
    assert file.about
    assert file.portable
    assert file.offers


def test_a_space_may_say_how_much_a_search_of_it_is_worth(tmp_path):
    space = read_space(written(tmp_path, "trials: 8\nseconds: 200\nbatch_size: [8, 16]\n"))
    assert (space.trials, space.seconds) == (8, 200)
    assert read_space(written(tmp_path, "batch_size: [8, 16]\n")).seconds is None
