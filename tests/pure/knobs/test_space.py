"""A search space on a machine: what is dropped, what is refused, what there is to choose from."""

from dataclasses import replace
from itertools import product

import pytest

from autotune.configuration.search_space import SearchSpace
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import ALL_KNOBS
from autotune.values.errors import UsageError
from autotune.values.outcome import WorkloadFacts
from covering import covers
from factories import IMAGE_FACTS, cpu_machine, narrowed, written

SPACE = """\
batch_size: [16, 32]
num_workers: [0, 1, 2]
prefetch_factor: [2, 4]
persistent_workers: [false, true]
"""
FLAT_FACTS = WorkloadFacts(
    dataset_samples=20,
    image_batches=False,
    optimizer_options=False,
    has_evaluate=False,
    baseline={},
)


def every_config(space):
    names = list(space.domains)
    values = product(*(space.domains[name] for name in names))
    return {TrainingConfig.of(dict(zip(names, each, strict=True))) for each in values}


def test_a_knob_that_is_not_offered_stays_at_the_baseline(tmp_path):
    path = written(tmp_path, "num_workers: [0, 2]\n")
    space = narrowed(path, cpu_machine(), {"batch_size": 48})
    assert space.varied() == {"num_workers": (0, 2)}
    assert space.domains["batch_size"] == (48,)
    assert list(space.domains) == [knob.name for knob in ALL_KNOBS]


def test_values_that_a_machine_cannot_run_are_refused_with_places_and_all_at_once(tmp_path):
    text = "num_workers: [0, 64]\namp_dtype: [null, float16]\nnum_threads: {low: 1, high: 3}\n"
    with pytest.raises(UsageError) as caught:
        narrowed(written(tmp_path, text), cpu_machine(cores=2))
    assert [line.removeprefix(f"{tmp_path}/") for line in str(caught.value).splitlines()] == [
        "space.yaml:1:18: num_workers=64 is not possible on this machine; "
        "at most 4 make sense with 2 usable cores.",
        "space.yaml:2:19: amp_dtype=float16 is not possible on this machine; "
        "Test CPU has no native float16 instructions.",
        "space.yaml:3:14: num_threads=3 is not possible on this machine; "
        "at most 2: the machine has no more cores.",
    ]


def test_a_library_that_is_not_there_is_told_with_its_place(tmp_path, monkeypatch):
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    monkeypatch.setattr("autotune.knobs.process.library", lambda _: None)
    with pytest.raises(UsageError, match=r":1:23: cpu_allocator=tcmalloc .* not installed"):
        narrowed(written(tmp_path, "cpu_allocator: [null, tcmalloc]\n"), cpu_machine())


@covers("P3")
def test_a_portable_file_is_narrowed_with_a_note_for_each_value(tmp_path):
    text = "portable: true\nnum_workers: [0, 64]\ncompile_mode: [null, reduce-overhead]\n"
    space = narrowed(written(tmp_path, text), cpu_machine())
    assert space.varied() == {}
    assert space.notes == (
        "num_workers=64 dropped: at most 4 make sense with 2 usable cores",
        "compile_mode=reduce-overhead dropped: torch 2.15.0 does not know this mode",
    )


def test_a_knob_that_means_nothing_to_the_workload_is_frozen_with_a_note(tmp_path):
    text = "channels_last: [false, true]\noptimizer_impl: [null, fused]\n"
    space = narrowed(written(tmp_path, text), cpu_machine(), facts=FLAT_FACTS)
    assert space.varied() == {}
    assert [note.split(":")[0] for note in space.notes] == [
        "channels_last stays false",
        "optimizer_impl stays null",
    ]


def test_workers_that_would_load_other_samples_are_frozen_with_what_needs_them(tmp_path):
    facts = replace(FLAT_FACTS, workers_obstacle="all of which each worker would load")
    alone = narrowed(written(tmp_path, SPACE), cpu_machine(), {"batch_size": 16}, facts)
    assert alone.varied() == {}
    assert "num_workers stays 0: all of which each worker would load" in alone.notes
    own = {"batch_size": 16, "num_workers": 2}
    with_workers = narrowed(written(tmp_path, SPACE), cpu_machine(), own, facts)
    assert list(with_workers.varied()) == ["prefetch_factor", "persistent_workers"]


def test_a_switch_of_the_users_that_has_no_effect_here_stays_on(tmp_path):
    path = written(tmp_path, "portable: true\npin_memory: [false, true]\n")
    space = narrowed(path, cpu_machine(), {"pin_memory": True})
    assert space.domains["pin_memory"] == (True,)
    assert space.notes == ("pin_memory stays true: there is no accelerator to copy to",)


def test_a_batch_larger_than_the_dataset_is_dropped_with_a_note(tmp_path):
    path = written(tmp_path, "batch_size: [8, 20, 21]\n")
    space = narrowed(path, cpu_machine(), {"batch_size": 8}, FLAT_FACTS)
    assert space.domains["batch_size"] == (8, 20)
    assert space.notes == ("batch_size=21 dropped: the dataset has 20 samples",)


def test_a_null_number_of_threads_is_the_machines_own_and_stands_once(tmp_path):
    path = written(tmp_path, "num_threads: [null, 1, 2]\n")
    assert narrowed(path, cpu_machine(cores=2)).domains["num_threads"] == (2, 1)


@pytest.mark.parametrize(
    "baseline",
    [
        {},
        {"batch_size": 48, "num_workers": 1, "prefetch_factor": 8, "persistent_workers": True},
        {"amp_dtype": "float16", "num_workers": 64, "persistent_workers": True},
        {"num_workers": 2, "persistent_workers": False},
    ],
    ids=str,
)
def test_the_baseline_is_always_inside(tmp_path, baseline):
    text = (
        "batch_size: [16]\nnum_workers: [0, 1]\nprefetch_factor: [2]\npersistent_workers: [true]\n"
    )
    space = narrowed(written(tmp_path, text), cpu_machine(), baseline, IMAGE_FACTS)
    assert TrainingConfig.of(baseline).resolved(cpu_machine()) in every_config(space)


@pytest.mark.parametrize(
    "text",
    [
        SPACE,
        "num_workers: [1, 2]\nprefetch_factor: [2, 4]\n",
        "num_workers: [0]\nprefetch_factor: [2, 4]\n",
        "batch_size: {low: 8, high: 64, log2: true}\nchannels_last: [false, true]\n",
        "about: nothing to choose\n",
        "num_workers: [0, 2]\nprefetch_factor: [null, 2]\n",
    ],
)
def test_the_size_is_the_number_of_different_configurations(tmp_path, text):
    space = narrowed(written(tmp_path, text), cpu_machine())
    assert space.size == len(every_config(space))


@covers("C10")
def test_settings_of_workers_count_once_where_there_are_none(tmp_path):
    # 2 batch sizes x (1 without workers + 2 numbers of workers x 2 factors x 2)
    assert narrowed(written(tmp_path, SPACE), cpu_machine()).size == 18


def test_a_value_outside_goes_to_the_nearest_one():
    own = TrainingConfig.of({}).as_dict()
    offered = {"batch_size": (16, 256, 1024), "num_workers": (0, 2, 8), "amp_dtype": (None,)}
    space = SearchSpace({n: offered.get(n, (value,)) for n, value in own.items()})
    found = space.within(
        TrainingConfig.of({"batch_size": 768, "num_workers": 16, "amp_dtype": "bfloat16"})
    )
    assert (found["batch_size"], found["num_workers"], found["amp_dtype"]) == (1024, 8, None)
