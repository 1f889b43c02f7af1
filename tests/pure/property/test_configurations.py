"""Whatever is drawn from a shipped search space, on any machine, is legal and survives YAML."""

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.configuration.best_config import read_best, write_best
from autotune.configuration.search_space import shipped_spaces
from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import knob_named
from factories import (
    IMAGE_FACTS,
    best_config,
    cpu_machine,
    cuda_machine,
    drawn,
    narrowed,
    plain_cpu_machine,
)

MACHINES = {
    "cpu, 2 cores": cpu_machine(2),
    "cpu, 64 cores, no bfloat16": plain_cpu_machine(64),
    "cuda": cuda_machine(),
}
BASELINES = {
    "defaults": {},
    "workers": {"batch_size": 48, "num_workers": 3, "persistent_workers": True},
}
# The fixtures are values that no example changes.
FEW = settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

pytestmark = [
    pytest.mark.parametrize("name", shipped_spaces()),
    pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES),
    pytest.mark.parametrize("baseline", BASELINES.values(), ids=BASELINES),
]


@pytest.fixture
def space(name, machine, baseline):
    return narrowed(shipped_spaces()[name], machine, baseline, IMAGE_FACTS)


def own(baseline, machine):
    return TrainingConfig.of(baseline).resolved(machine)


@FEW
@given(seed=st.integers(0, 2**32))
def test_a_drawn_configuration_can_run_there_unless_it_is_the_users_own(
    space, machine, baseline, seed
):
    changed = drawn(space, Random(seed)).differences(own(baseline, machine))
    obstacles = {name: knob_named(name).obstacle(value, machine) for name, value in changed.items()}
    assert obstacles == dict.fromkeys(changed)


@settings(FEW, max_examples=4)
@given(seed=st.integers(0, 2**32))
def test_an_answer_survives_its_file(space, machine, baseline, seed, tmp_path):
    best = best_config(drawn(space, Random(seed)), own(baseline, machine))
    write_best(best, tmp_path / "best.yaml")
    assert read_best(tmp_path / "best.yaml") == best


def test_the_size_is_never_less_than_what_can_be_drawn(space):
    random = Random(0)
    assert 1 <= len({drawn(space, random) for _ in range(300)}) <= space.size
