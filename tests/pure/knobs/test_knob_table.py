"""The recorded gains of each knob on a CPU decide in which spaces it is."""

import json
import re
from collections import defaultdict
from pathlib import Path
from statistics import median

import pytest

from autotune.configuration.search_space import find_space, read_space
from autotune.knobs import KNOBS
from autotune.knobs.base import spelled
from benchmarks.page import RESULTS

_GAIN = 1.05
_ON_TWO_CORES = "workers and threads share two cores there; most machines have more"
_ELSEWHERE = {
    **dict.fromkeys(
        ("num_workers", "persistent_workers", "in_order", "num_threads"), _ON_TWO_CORES
    ),
    "float32_matmul_precision": "high is TF32, which only a GPU can tell; medium loses on three",
}
"""Knobs that gain on none of the studies, each with why it is in these spaces all the same."""

_NOT_OFFERED = {
    "cpu_affinity": "on two cores it left one to training and one to workers: num_threads is 1",
    "huge_pages": "it is the variable THP_MEM_ALLOC_ENABLE of the full space",
    "omp_wait_policy": "it is the variable OMP_WAIT_POLICY of the space of CPUs",
}
"""Settings that gain on a study and are no knobs."""


def recorded():
    """The content of benchmarks/results/knobs.json."""
    return json.loads((Path(RESULTS) / "knobs.json").read_text(encoding="utf-8"))


def gains():
    """For each knob and value that was timed, the median of each study whose rounds all gain."""
    worths = recorded()["worths"]
    found = defaultdict(lambda: defaultdict(list))
    for turned in worths.values():
        for name, worth in turned.items():
            knob, _, value = name.partition(",")[0].partition(" ")[0].partition("=")
            if ratios := worth["ratios"]:
                found[knob][value] += [median(ratios)] if min(ratios) > 1 else []
    return found


@pytest.mark.parametrize("space", ["quick", "default", "cpu", "loader"])
def test_a_knob_that_gains_on_no_study_is_in_the_full_space_alone(space):
    offered = {
        knob: {"", *map(spelled, values)}
        for knob, values in read_space(find_space(space)).offers.items()
        if len(values) > 1
    }
    useless = {
        knob
        for knob, values in gains().items()
        if knob in offered
        and not any(max(values[value], default=0.0) > _GAIN for value in offered[knob])
    }
    assert useless <= _ELSEWHERE.keys()


def test_what_gains_on_a_study_is_in_the_space_of_cpus():
    offered = read_space(find_space("cpu")).offers
    useful = {
        knob
        for knob, values in gains().items()
        if any(max(medians, default=0.0) > _GAIN for medians in values.values())
    }
    assert useful - {*offered} == {*_NOT_OFFERED}


def test_the_table_of_the_page_has_no_setting_that_is_gone():
    rows = [row[0] for row in recorded()["rows"]]
    assert [row for row in rows if re.match(r"\w+", row)[0] not in KNOBS] == []
