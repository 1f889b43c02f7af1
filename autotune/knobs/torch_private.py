"""Private names of torch, each with the reason why no public name serves.

No other module of the package touches one. Functions import torch themselves, because the parent
process, which reads knobs, does without it. `tests/pure/contract/long/test_torch_private.py`
tests each on the torch that is installed, `make test-oldest` on the oldest one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from autotune.process.common.imports import AfterImport, replace

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.nn.parallel import DistributedDataParallel

COMPILER = ("torch._dynamo", "torch._inductor")
"""Packages of the compiler: errors are told apart by the module that they come from."""
IMPORTED_BY_OPTIM = "torch._dynamo"
"""Module that torch.optim imports, which takes a second."""


def compiled_call(model: nn.Module) -> Callable[..., Any] | None:
    """Return the compiled code that calls of `model` run; None if they run eagerly.

    `Module.compile` keeps it there and offers no way to read it.
    """
    call: Callable[..., Any] | None = model._compiled_call_impl
    return call


def set_compiled_call(model: nn.Module, call: Callable[..., Any] | None) -> None:
    """Let calls of `model` run `call`; None for eager ones.

    What is there is no part of a copy, a pickle or the state_dict, unlike a hook or a wrapper.
    """
    model._compiled_call_impl = call


def eager_call(model: nn.Module) -> Callable[..., Any]:
    """Return the call of `model` with its hooks and without compiled code.

    Calling only its `forward` would leave out the hooks.
    """
    call: Callable[..., Any] = model._call_impl
    return call


def own_call(model: nn.Module) -> Callable[..., Any]:
    """Return what calls of `model` run, compiled or not.

    What `torch.compile(module)` returned hands its attributes on to the module; this is its own.
    """
    call: Callable[..., Any] | None = vars(model).get("_compiled_call_impl")
    return call or model._call_impl


def set_own_call(model: nn.Module, call: Callable[..., Any]) -> None:
    """Let calls of `model` run `call`; see `own_call`."""
    vars(model)["_compiled_call_impl"] = call


def is_view(tensor: Tensor) -> bool:
    """Return True if a tensor is a view of another one; public names only show storages.

    What a CUDA graph writes may be a part of a storage, and is no view.
    """
    return tensor._is_view()


def is_compiled_wrapper(model: nn.Module) -> bool:
    """Return True if `model` is what `torch.compile(module)` returned; its class is private."""
    return hasattr(model, "_orig_mod")


def compile_modes() -> Mapping[str, Mapping[str, Any]]:
    """Return the options of each mode of torch.compile; `torch.compiler` does not list them."""
    import torch._inductor

    modes: Mapping[str, Mapping[str, Any]] = torch._inductor.list_mode_options()
    return modes


def compiled_dynamic(compiled: Any) -> bool | None:
    """Return the `dynamic` of the torch.compile that made a function or wrapper module.

    `get_compiler_config` only has the options of the mode. It is a closure over the context that
    the compiler runs in, which holds the rest.
    """
    import inspect

    context = inspect.getclosurevars(compiled.get_compiler_config).nonlocals["self"]
    dynamic: bool | None = context._dynamic
    return dynamic


def compile_options(compiled: Any) -> Mapping[str, Any] | None:
    """Return the options of a torch.compile that differ from torch's; None for another backend.

    `get_compiler_config` tells all options of the backend.
    """
    import torch._inductor.config

    config: Mapping[str, Any] | None = compiled.get_compiler_config()
    own: Mapping[str, Any] = torch._inductor.config.get_config_copy()
    return config and {name: value for name, value in config.items() if own.get(name) != value}


def compiled_graphs() -> int:
    """Return the number of graphs that this process compiled: compiling can silently do nothing."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def compile_error() -> type[Exception]:
    """Return the class of the compiler's errors, which tells them from those of the model."""
    from torch._dynamo.exc import TorchDynamoException

    return TorchDynamoException


def on_compilation(start: Callable[[], None], end: Callable[[], None]) -> None:
    """Call `start` and `end` around each compilation; no public event has its seconds.

    The compiler, whose import takes seconds, is not imported for it. Registered callbacks would not
    do, because `torch.compiler.reset` drops them.
    """

    def watch() -> None:
        handler: Any = sys.modules["torch._dynamo.callback"].callback_handler
        handler.run_start_callbacks = _before(handler.run_start_callbacks, start)
        handler.run_end_callbacks = _before(handler.run_end_callbacks, end)

    AfterImport("torch._dynamo.callback", watch)


def _before(original: Callable[..., None], call: Callable[[], None]) -> Callable[..., None]:
    def both(*args: Any) -> None:  # none until torch 2.7
        call()
        original(*args)

    return both


def draw_as_eager_does() -> None:
    """Let compiled code draw eager mode's random numbers; by default no seed makes them equal."""
    import torch._inductor.config

    torch._inductor.config.fallback_random = True


def activation_budget() -> float:
    """Return the share of activations that code compiled from now on keeps.

    Otherwise, there is only a context for a part of a model, in `torch.autograd.graph`.
    """
    import torch._functorch.config

    return float(torch._functorch.config.activation_memory_budget)


def set_activation_budget(share: float) -> None:
    """Set that share, see `activation_budget`; nothing is imported to keep it at all of them."""
    if share < 1 or "torch._functorch.config" in sys.modules:
        import torch._functorch.config

        torch._functorch.config.activation_memory_budget = share


def is_profiling() -> bool:
    """Return True if a profiler runs, which excludes another; torch has no public name."""
    import torch

    return bool(torch.autograd._profiler_enabled())  # type: ignore[attr-defined]


_checkpointed = 0


def checkpointed_calls() -> int:
    """Return the calls of checkpointed functions so far; the first call begins to count.

    A call is counted as it runs or as the compiler meets it. `torch.utils.checkpoint` has no hook,
    and models import its function by name, so that it cannot be replaced by one that counts.
    """
    from torch._dynamo.variables.higher_order_ops import CheckpointHigherOrderVariable
    from torch.utils import checkpoint

    is_new = hasattr(CheckpointHigherOrderVariable, "_call_function")  # not in torch 2.6
    for kind, method in (
        (checkpoint._CheckpointFrame, "__init__"),
        (checkpoint.CheckpointFunction, "forward"),
        (CheckpointHigherOrderVariable, "_call_function" if is_new else "call_function"),
    ):
        if not hasattr(getattr(kind, method), _COUNTS):
            replace(kind, method, _counted)
            setattr(getattr(kind, method), _COUNTS, True)
    return _checkpointed


_COUNTS = "counts_checkpointed_calls"


def _counted(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    global _checkpointed  # noqa: PLW0603 (one count for the process)
    _checkpointed += 1
    return original(*args, **kwargs)


def watching_operators(
    look: Callable[[str, Sequence[Any]], None],
) -> AbstractContextManager[object]:
    """Return a context in which `look` gets each operator's name and arguments.

    `FlopCounterMode` is public, the class that it is made of is not. A name is
    namespace.name.overload, as in aten.mm.default.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watching(TorchDispatchMode):  # type: ignore[no-untyped-call]
        supports_higher_order_operators = True

        def __torch_dispatch__(
            self, operator: Any, _: Any, arguments: Any = (), options: Any = None
        ) -> Any:
            look(str(operator), arguments)
            return operator(*arguments, **(options or {}))

    return Watching()  # type: ignore[no-untyped-call]


def has_triton_package() -> bool:
    """Return True if Triton is installed, as the compiler looks for it."""
    from torch.utils import _triton

    return bool(_triton.has_triton_package())


def has_triton() -> bool:
    """Return True if the compiler can use Triton on the present accelerator."""
    from torch.utils import _triton

    return bool(_triton.has_triton())


def map_leaves(change: Callable[[Any], Any], tree: Any) -> Any:
    """Return nested containers with `change` applied to each leaf; there is no public pytree."""
    from torch.utils import _pytree

    return _pytree.tree_map(change, tree)


def is_dropout(module: nn.Module) -> bool:
    """Return True for any kind of dropout layer; their common class is private."""
    from torch import nn

    return isinstance(module, nn.modules.dropout._DropoutNd)


def ready_batches(iterator: Iterator[Any], workers: int) -> int | None:
    """Return the number of batches that workers have ready; None if unknown or without meaning.

    Near the end of an epoch the workers get no further requests. The stock is used up in every
    epoch then, and belongs to the epoch's pace. A DataLoader does not show its stock.
    """
    inside: Any = iterator
    try:
        if inside._tasks_outstanding < workers * inside._prefetch_factor:
            return None
        ready = sum(len(task) > 1 for task in inside._task_info.values())
        queues = {id(q): q for q in (inside._data_queue, inside._worker_result_queue)}
        return int(ready + sum(queue.qsize() for queue in queues.values()))
    except (AttributeError, NotImplementedError, OSError):
        return None


def loader_iterators() -> Any:
    """Return the class of all iterators of DataLoaders: no hook of torch is called for a batch."""
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    return _BaseDataLoaderIter


def torch_s_own(iterator: Any) -> Any:
    """Return the iterator of torch's that a loader's iterator wraps; it itself if it wraps none.

    Loaders of graphs wrap it to build each batch in the main process.
    """
    own = loader_iterators()
    inner = (it for it in getattr(iterator, "__dict__", {}).values() if isinstance(it, own))
    return iterator if isinstance(iterator, own) else next(inner, iterator)


def watch_indices(note: Callable[[Any, object, Any, bool], None]) -> None:
    """Call `note` with each index that an iterator of a DataLoader takes from its sampler.

    It gets the iterator, an object that stands for the epoch, the index, and True if that is a
    list of those of a whole batch. Batches do not show how many samples they were collated from.
    """

    def _next_index(take: Callable[[Any], Any], iterator: Any) -> Any:
        index = take(iterator)
        note(iterator, iterator._sampler_iter, index, iterator._auto_collation)
        return index

    replace(loader_iterators(), "_next_index", _next_index)


def has_iterator(loader: object) -> bool:
    """Return True if a DataLoader keeps its iterator, whose workers run from epoch to epoch."""
    return getattr(loader, "_iterator", None) is not None


def drop_iterator(loader: Any) -> None:
    """Let a DataLoader forget its iterator, which ends persistent workers; no method does that."""
    if "_iterator" in vars(loader):
        vars(loader)["_iterator"] = None


def comm_hooks(ddp: DistributedDataParallel) -> list[Callable[..., Any]]:
    """Return the hooks that exchange gradients in place of DDP; it offers no way to read them."""
    return [hook for hook, _ in ddp._comm_hooks]


def setters(*names: str) -> list[tuple[Any, str]]:
    """Return where torch's inner functions that set a flag are called from: owner and name.

    Several public functions and assignments set the same flag by one of them, which
    `torch.backends.cudnn` holds as well.
    """
    import torch

    kept = [prop for prop in vars(type(torch.backends.cudnn)).values() if hasattr(prop, "setter")]
    own = {getattr(torch._C, name) for name in names}
    return [
        *((torch._C, name) for name in names),
        *((prop, "setter") for prop in kept if prop.setter in own),
    ]
