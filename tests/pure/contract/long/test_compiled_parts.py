"""torch.compile for any shape or each, and of a model's repeated blocks, read back."""

import pytest
import torch
from torch import nn

from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import KNOBS
from autotune.knobs.compile import compiled_modules, repeated_blocks
from autotune.knobs.torch_private import compiled_call, compiled_dynamic, compiled_graphs
from autotune.training.apply_settings import Settings
from autotune.training.training_setup import apply, build_dataset

# Dynamo hides this warning from users, but not from pytest.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")

BLOCKS = {"compile_mode": "default", "compile_scope": "blocks"}


def set_up(workload, **settings):
    config = TrainingConfig.of({"num_threads": torch.get_num_threads(), **settings})
    Settings(config).apply_to_process()
    return apply(config, workload, "cpu", seed=0, dataset=build_dataset(workload))


def losses(setup):
    return [setup.step(iter(setup.loader)).item() for _ in range(3)]


def encoder(layers):
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, batch_first=True), layers)


@pytest.mark.parametrize(("layers", "found"), [(2, 0), (3, 3), (6, 6)])
def test_three_modules_of_one_class_in_a_list_are_repeated_blocks(layers, found):
    assert len(repeated_blocks(encoder(layers))) == found


def test_layers_without_parts_and_blocks_inside_of_blocks_are_no_repeated_blocks():
    flat = nn.Sequential(*(nn.Linear(2, 2) for _ in range(4)))
    assert repeated_blocks(flat) == []
    stages = nn.ModuleList(nn.Sequential(*(encoder(3) for _ in range(3))) for _ in range(3))
    assert repeated_blocks(stages) == list(stages)


def test_equal_blocks_share_compilations(blocks_workload):
    before = compiled_graphs()
    setup = set_up(blocks_workload, **BLOCKS)
    compiled = losses(setup)
    # The input of the first block has no gradient, those of all others have one.
    assert compiled_graphs() - before == 2 < len(setup.model.blocks)
    assert compiled_call(setup.model) is None
    assert compiled_modules(setup.model) == list(setup.model.blocks)
    assert setup.not_applied() == []
    eager = losses(set_up(blocks_workload))
    assert compiled == pytest.approx(eager, rel=0.2), "dropout draws other numbers"


def test_blocks_of_torchs_own_classes_are_compiled(blocks_workload):
    model = encoder(3)
    Settings(TrainingConfig.of(BLOCKS)).prepare(model)
    before = compiled_graphs()
    assert model(torch.ones(2, 4, 8)).requires_grad
    assert compiled_graphs() > before


def test_a_model_without_blocks_is_compiled_whole_and_reads_back_so(workload):
    setup = set_up(workload, **BLOCKS)
    losses(setup)
    assert setup.not_applied() == [("compile_scope", "blocks", "whole")]


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_the_treatment_of_shapes_is_that_of_the_compiler(workload, dynamic):
    setup = set_up(workload, compile_mode="default", compile_dynamic=dynamic)
    losses(setup)
    assert KNOBS["compile_dynamic"].read_back(setup) is dynamic
    assert compiled_dynamic(torch.compile(nn.Linear(1, 1), dynamic=dynamic)) is dynamic


@pytest.mark.parametrize(("dynamic", "graphs"), [(True, 1), (False, 3), (None, 2)])
def test_batches_of_many_lengths_share_a_compilation_if_shapes_are_dynamic(dynamic, graphs):
    class Doubles(nn.Module):
        def forward(self, batch):
            return (batch * 2).relu()

    config = TrainingConfig.of({"compile_mode": "default", "compile_dynamic": dynamic})
    model = Settings(config).prepare(Doubles())
    before = compiled_graphs()
    for length in (5, 6, 7):
        model(torch.ones(3, length, requires_grad=True))
    assert compiled_graphs() - before == graphs
