"""The kernel of attention and recomputed activations, read back from what ran."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import KNOBS, model
from autotune.knobs.model import mentions_attention
from autotune.training import inspection
from autotune.training.apply_settings import Settings
from autotune.training.inspection import describe_workload
from autotune.training.training_setup import apply, build_dataset
from autotune.training.workload import load_workload
from autotune.values.errors import UsageError
from factories import cpu_machine, cuda_machine
from tiers import late

# Dynamo hides this warning from users, but not from pytest.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")

CPU_KERNELS = ("flash", "math")


def set_up(workload, **settings):
    config = TrainingConfig.of({"num_threads": torch.get_num_threads(), **settings})
    Settings(config).apply_to_process()
    return apply(config, workload, "cpu", seed=0, dataset=build_dataset(workload))


def trained(setup, steps=1):
    """The gradients after some steps, with the same random numbers each time."""
    torch.manual_seed(1)
    for _ in range(steps):
        setup.step(iter(setup.loader))
    return [weight.grad.clone() for weight in setup.model.parameters() if weight.grad is not None]


@pytest.mark.parametrize(
    ("kernel", "mode"),
    [
        *((kernel, None) for kernel in CPU_KERNELS),
        pytest.param("flash", "default", marks=pytest.mark.real),
        late("math", "default"),
    ],
)
def test_the_kernel_is_read_from_the_operators_that_ran(kernel, mode, blocks_workload):
    setup = set_up(blocks_workload, sdpa_backend=kernel, compile_mode=mode)
    assert KNOBS["sdpa_backend"].read_back(setup) is None, "permitted, and nothing has run"
    trained(setup, steps=3)
    assert setup.not_applied() == []


@pytest.mark.parametrize("kernel", CPU_KERNELS)
def test_a_model_that_calls_no_attention_has_no_kernel(kernel, workload):
    setup = set_up(workload, sdpa_backend=kernel)
    trained(setup)
    assert KNOBS["sdpa_backend"].read_back(setup) is None


# Older releases of torch warn of it in every profile.
@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events:UserWarning")
def test_a_profile_of_the_users_own_goes_on(blocks_workload):
    setup = set_up(blocks_workload, sdpa_backend="math")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
        trained(setup)
    assert "aten::_scaled_dot_product_attention_math" in {event.name for event in own.events()}
    trained(setup)
    assert setup.not_applied() == []


def test_kernels_differ_by_rounding_alone(blocks_workload):
    flash, math = (trained(set_up(blocks_workload, sdpa_backend=k)) for k in CPU_KERNELS)
    for one, other in zip(flash, math, strict=True):
        torch.testing.assert_close(one, other)


def test_a_kernel_is_offered_where_torch_has_it():
    knob = KNOBS["sdpa_backend"]
    assert knob.suggestions(cpu_machine()) == (None, "flash", "math")
    kernels = ("flash", "efficient", "math", "cudnn", "without_cudnn")
    assert knob.suggestions(cuda_machine()) == (None, *kernels)
    assert "no such kernel for cpu" in str(knob.obstacle("efficient", cpu_machine()))


def test_a_source_that_mentions_attention_is_found(blocks_workload, workload, tmp_path):
    plain = workload.build_model()
    assert mentions_attention(blocks_workload.build_model(), [])
    assert mentions_attention(nn.MultiheadAttention(4, 2), [])
    assert not mentions_attention(plain, [workload.path, tmp_path / "missing.py"])
    assert mentions_attention(plain, [blocks_workload.path])


def test_an_inspection_finds_what_the_knobs_need(blocks_workload, workload, monkeypatch):
    # A child has one workload; in this process the other one and the tests look imported by it.
    monkeypatch.setattr(inspection, "own_modules", lambda _: {})
    found = describe_workload(blocks_workload, {})
    plain = describe_workload(workload, {})
    assert (found.attention, found.has_checkpoint, found.repeated_blocks) == (True, True, True)
    assert (plain.attention, plain.has_checkpoint, plain.repeated_blocks) == (False, False, False)
    assert not plain.equal_groups
    assert not plain.fills_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    groups = lambda given: torch.optim.SGD([{"params": [one]} for one in given], lr=0.1)  # noqa: E731
    other = describe_workload(replace(workload, build_optimizer=groups), {})
    assert other.equal_groups
    assert other.fills_memory
    names = ("sdpa_backend", "activation_checkpointing", "compile_scope")
    assert [KNOBS[name].irrelevance(found) for name in names] == [None, None, None]
    assert all(KNOBS[name].irrelevance(plain) for name in names)


def test_volumes_make_the_layout_matter(workload):
    volumes = TensorDataset(torch.ones(4, 3, 4, 4, 4), torch.zeros(4))
    changed = replace(
        workload, build_model=lambda: nn.Conv3d(3, 4, 3), build_dataset=lambda: volumes
    )
    assert describe_workload(changed, {}).image_batches
    flat = replace(changed, build_model=lambda: nn.Conv2d(3, 4, 3))
    assert not describe_workload(flat, {}).image_batches


class Counting:
    """A count of the calls of a module."""

    def __init__(self, module):
        self.calls = 0
        module.register_forward_hook(self)

    def __call__(self, *_):
        self.calls += 1


def test_recomputed_activations_run_again_and_give_the_same_gradients(blocks_workload):
    found = {}
    for value in (False, True):
        setup = set_up(blocks_workload, activation_checkpointing=value)
        counting = Counting(setup.model.blocks[0].attention)
        found[value] = trained(setup)
        assert counting.calls == 1 + value
        assert setup.not_applied() == []
    # Dropout draws the same numbers again.
    assert all(map(torch.equal, found[False], found[True]))


@pytest.mark.parametrize("kernel", CPU_KERNELS)
def test_what_is_recomputed_runs_the_same_kernel(kernel, blocks_workload):
    setup = set_up(blocks_workload, activation_checkpointing=True, sdpa_backend=kernel)
    trained(setup, steps=3)
    assert setup.not_applied() == []


def test_without_a_kernel_all_are_permitted_that_were_before():
    cuda, knob = torch.backends.cuda, KNOBS["sdpa_backend"]
    cuda.enable_cudnn_sdp(False)
    try:
        for value in ("math", "flash", None):
            knob.on_process(value)
        assert cuda.flash_sdp_enabled()
        assert cuda.math_sdp_enabled()
        assert not cuda.cudnn_sdp_enabled()
    finally:
        cuda.enable_cudnn_sdp(True)


def test_the_others_are_permitted_without_cudnn_as_they_were():
    cuda, knob = torch.backends.cuda, KNOBS["sdpa_backend"]
    cuda.enable_math_sdp(False)
    try:
        knob.on_process("flash")
        knob.on_process("without_cudnn")
        assert cuda.flash_sdp_enabled()
        assert cuda.mem_efficient_sdp_enabled()
        assert not cuda.math_sdp_enabled()
        assert not cuda.cudnn_sdp_enabled()
        knob.on_process(None)
        assert cuda.cudnn_sdp_enabled()
        assert not cuda.math_sdp_enabled()
    finally:
        cuda.enable_math_sdp(True)


@pytest.mark.parametrize(
    ("ran", "value"),
    [
        (("flash_attention", "efficient_attention"), "without_cudnn"),
        (("attention_math",), "without_cudnn"),
        (("flash_attention", "cudnn_attention"), None),
        ((), None),
    ],
)
def test_attention_without_cudnn_is_read_from_what_ran(ran, value, blocks_workload, monkeypatch):
    setup = set_up(blocks_workload, sdpa_backend="without_cudnn")
    trained(setup, steps=2)
    assert KNOBS["sdpa_backend"].read_back(setup) == "without_cudnn"
    operators = frozenset(f"aten::_scaled_dot_product_{name}" for name in ran)
    monkeypatch.setitem(model._operators_seen, "without_cudnn", [operators])
    assert KNOBS["sdpa_backend"].read_back(setup) == value


@pytest.mark.long
def test_recomputation_is_seen_in_compiled_code(blocks_workload):
    setup = set_up(blocks_workload, activation_checkpointing=True, compile_mode="default")
    trained(setup)
    assert setup.not_applied() == []


def test_a_function_that_wraps_nothing_is_noticed(blocks_workload):
    idle = replace(blocks_workload, checkpoint=lambda model: None)
    setup = set_up(idle, activation_checkpointing=True)
    trained(setup)
    assert [name for name, _, _ in setup.not_applied()] == ["activation_checkpointing"]


def test_recomputation_without_the_users_function_says_what_to_pass():
    settings = Settings(TrainingConfig.of({"activation_checkpointing": True}))
    with pytest.raises(UsageError, match=r"best\.prepare\(model, checkpoint=checkpoint\)"):
        settings.prepare(nn.Linear(1, 1))


@pytest.mark.parametrize(
    ("lines", "is_hook"),
    [
        ("from torch.utils.checkpoint import checkpoint", False),
        ("def checkpoint(model, path):\n    ...", False),
        ("def save_checkpoint(model):\n    ...", False),
        ("def checkpoint(model):\n    ...", True),
    ],
)
def test_only_a_function_of_the_file_with_one_argument_is_called(
    tmp_path, lines, is_hook, workload
):
    path = tmp_path / "some_model.py"
    path.write_text(f"{workload.path.read_text()}\n\n{lines}\n")
    assert (load_workload(path).checkpoint is not None) == is_hook


def test_volumes_and_their_weights_are_channels_last_beside_images():
    settings = Settings(TrainingConfig.of({"channels_last": True}))
    model = nn.ModuleList([nn.Conv3d(3, 4, 3), nn.Conv2d(3, 4, 3), nn.Linear(2, 2)])
    volumes, images, flat = settings.prepare(copy.deepcopy(model))
    assert volumes.weight.is_contiguous(memory_format=torch.channels_last_3d)
    assert images.weight.is_contiguous(memory_format=torch.channels_last)
    assert flat.weight.is_contiguous()
    batch = settings.transfer([torch.ones(2, 3, 4, 4, 4), torch.ones(2, 3, 4, 4)], "cpu")
    assert batch[0].is_contiguous(memory_format=torch.channels_last_3d)
    assert batch[1].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(volumes.weight, model[0].weight)
