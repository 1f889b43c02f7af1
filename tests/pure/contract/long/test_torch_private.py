"""The private names of torch are there, and do what `autotune.knobs.torch_private` says."""

import copy
import importlib.util

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from autotune.knobs import torch_private
from autotune.process.common.imports import replace, undo_all

BATCH = torch.ones(2, 4)


def test_calls_run_what_was_set_and_eager_code_otherwise():
    model = nn.Sequential(nn.Linear(4, 4))
    assert torch_private.compiled_call(model) is None
    torch_private.set_compiled_call(model, lambda batch: batch + 1)
    assert torch.equal(model(BATCH), BATCH + 1)
    assert not torch.equal(torch_private.eager_call(model)(BATCH), BATCH + 1)
    assert torch_private.compiled_call(copy.deepcopy(model)) is None
    torch_private.set_compiled_call(model, None)
    assert not torch.equal(model(BATCH), BATCH + 1)


def test_a_call_of_what_was_compiled_is_not_that_of_the_module_in_it():
    inner = nn.Linear(4, 4)
    model = torch.compile(inner, backend="eager")
    own = torch_private.own_call(model)
    torch_private.set_own_call(model, lambda batch: own(batch) + 1)
    assert torch.allclose(model(BATCH), inner(BATCH) + 1)
    torch_private.set_own_call(inner, lambda batch: batch)
    assert torch.equal(torch_private.own_call(inner)(BATCH), BATCH)


def test_a_view_is_told_from_a_tensor_of_its_own():
    flat = torch.zeros(4)
    assert torch_private.is_view(flat[:2].view(2, 1))
    assert not torch_private.is_view(flat)
    assert not torch_private.is_view(flat[:2].clone())


def test_an_eager_call_runs_hooks():
    model, seen = nn.Linear(4, 4), []
    model.register_forward_pre_hook(lambda *_: seen.append(1))
    torch_private.eager_call(model)(BATCH)
    assert seen == [1]


def test_a_compilation_is_seen_and_its_wrapper_known():
    told = []
    torch_private.on_compilation(lambda: told.append("start"), lambda: told.append("end"))
    torch_private.draw_as_eager_does()
    torch.compiler.reset()  # which forgets callbacks
    before = torch_private.compiled_graphs()
    model = torch.compile(nn.Linear(4, 4), backend="eager")
    model(BATCH)
    assert torch_private.is_compiled_wrapper(model)
    assert not torch_private.is_compiled_wrapper(nn.Linear(4, 4))
    assert torch_private.compiled_graphs() == before + 1
    assert told[0] == "start"
    assert told[-1] == "end"


@pytest.mark.parametrize("reentrant", [False, True])
def test_calls_of_checkpointed_functions_are_counted(reentrant):
    layer, batch = nn.Linear(4, 4), torch.ones(2, 4, requires_grad=True)
    before = torch_private.checkpointed_calls()
    layer(batch).sum().backward()
    assert torch_private.checkpointed_calls() == before
    checkpoint(layer, batch, use_reentrant=reentrant).sum().backward()
    assert torch_private.checkpointed_calls() == before + 1


def test_a_checkpointed_function_is_counted_as_the_compiler_meets_it():
    layer, batch = nn.Linear(4, 4), torch.ones(2, 4, requires_grad=True)
    before = torch_private.checkpointed_calls()

    def forward(batch):
        return checkpoint(layer, batch, use_reentrant=False)

    torch.compile(forward, backend="eager")(batch)
    assert torch_private.checkpointed_calls() > before


def test_compiled_code_keeps_fewer_activations_within_a_smaller_budget():
    kept = {}
    model = nn.Sequential(*(part for _ in range(8) for part in (nn.Linear(64, 64), nn.GELU())))
    try:
        for share in (1.0, 0.3):
            torch.compiler.reset()
            torch_private.set_activation_budget(share)
            assert torch_private.activation_budget() == share
            sizes = []

            def pack(tensor, sizes=sizes):
                sizes.append(0 if isinstance(tensor, nn.Parameter) else tensor.numel())
                return tensor

            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                torch.compile(model, backend="aot_eager_decomp_partition")(torch.ones(32, 64))
            kept[share] = sum(sizes)
    finally:
        torch_private.set_activation_budget(1.0)
        torch.compiler.reset()
    assert 0 < kept[0.3] < 0.7 * kept[1.0]


def test_a_profiler_that_runs_is_seen():
    assert not torch_private.is_profiling()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        assert torch_private.is_profiling()
    assert not torch_private.is_profiling()


def test_a_flag_is_set_by_what_is_told_however_it_is_set():
    calls = []
    try:
        for owner, name in torch_private.setters("_set_cudnn_benchmark", "_set_cublas_allow_tf32"):
            replace(owner, name, lambda _, value, name=name: calls.append((name, value)))
        torch.backends.cudnn.benchmark = True
        with torch.backends.cudnn.flags(benchmark=False):
            pass
        torch.backends.cuda.matmul.allow_tf32 = True
    finally:
        undo_all()
    by_flags = [("_set_cudnn_benchmark", False)] * 2
    assert calls == [("setter", True), *by_flags, ("_set_cublas_allow_tf32", True)]


def test_options_of_the_compiler_are_those_that_were_passed():
    def options(**given):
        return torch_private.compile_options(torch.compile(nn.Linear(4, 4), **given))

    assert options() == {}
    assert options(backend="eager") is None
    assert options(options={"epilogue_fusion": False}) == {"epilogue_fusion": False}
    mode = "max-autotune-no-cudagraphs"
    assert options(mode=mode) == torch_private.compile_modes()[mode]


def test_modes_are_those_of_the_documentation():
    assert {"default", "reduce-overhead", "max-autotune"} <= set(torch_private.compile_modes())


def test_an_error_of_the_compiler_is_told_from_others():
    assert issubclass(torch_private.compile_error(), Exception)
    assert not issubclass(ValueError, torch_private.compile_error())
    assert torch_private.compile_error().__module__.startswith(torch_private.COMPILER)


def test_triton_is_usable_where_it_is_installed_beside_an_accelerator():
    installed = importlib.util.find_spec("triton") is not None
    assert torch_private.has_triton_package() == installed
    assert torch_private.has_triton() == (installed and torch.accelerator.is_available())


def test_leaves_and_dropout_are_found():
    assert torch_private.map_leaves(lambda leaf: leaf + 1, {"a": [1, (2,)]}) == {"a": [2, (3,)]}
    assert torch_private.is_dropout(nn.Dropout2d())
    assert not torch_private.is_dropout(nn.Linear(1, 1))


def test_the_stock_and_the_workers_of_a_loader_are_reached():
    data = TensorDataset(torch.arange(64.0))
    loader = DataLoader(data, batch_size=1, num_workers=1, persistent_workers=True)
    iterator = iter(loader)
    assert isinstance(iterator, torch_private.loader_iterators())
    next(iterator)
    assert torch_private.has_iterator(loader)
    ready = torch_private.ready_batches(iterator, workers=1)
    assert ready is not None
    assert 0 <= ready <= 3
    assert torch_private.ready_batches(iter([]), workers=1) is None
    torch_private.drop_iterator(loader)
    assert not torch_private.has_iterator(loader)


def test_the_indices_of_each_batch_are_told_with_their_epoch(monkeypatch):
    iterators = torch_private.loader_iterators()
    monkeypatch.setattr(iterators, "_next_index", iterators._next_index)
    told = []
    torch_private.watch_indices(lambda _, epoch, *rest: told.append((epoch, *rest)))
    loader = DataLoader([0, 1, 2], batch_size=2, num_workers=1, persistent_workers=True)
    for _ in range(2):
        assert [batch.tolist() for batch in loader] == [[0, 1], [2]]
    assert [(index, is_batch) for _, index, is_batch in told] == 2 * [([0, 1], True), ([2], True)]
    assert told[0][0] is told[1][0] is not told[2][0]
