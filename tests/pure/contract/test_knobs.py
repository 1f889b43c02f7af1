"""Every knob explains itself, takes effect, and reads itself back."""

from dataclasses import replace
from itertools import repeat

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, default_collate

from autotune.configuration.training_config import TrainingConfig
from autotune.knobs import ALL_KNOBS, KNOBS, torch_private
from autotune.knobs.base import Knob, spelled
from autotune.knobs.ranks import COMM_DTYPE
from autotune.knobs.torch_private import compile_modes
from autotune.process.runner import SubprocessRunner
from autotune.training.apply_settings import Settings
from autotune.training.ranks import ALONE, comm_dtypes
from autotune.training.training_setup import TrainingSetup, apply, build_dataset
from autotune.values.outcome import Measured
from children import WORKLOADS, job_for
from factories import IMAGE_FACTS, cpu_machine, cuda_machine, plain_cpu_machine
from knob_contract import Bench, return_faults, suggestion_faults, text_faults, value_faults

# A CPU with every instruction there is, so that every value which torch can apply is tried.
CPU = replace(
    cpu_machine(2),
    native_dtypes=("bfloat16", "float16"),
    matmul_precisions=("highest", "high", "medium"),
)
MACHINES = (CPU, cpu_machine(64), plain_cpu_machine(1), cuda_machine())
# Of no use on a CPU, but there to be set and read.
ALSO_SETTABLE = (
    ("pin_memory", True),
    ("cudnn_benchmark", True),
    ("sdpa_backend", "without_cudnn"),
)

COMM_DTYPES = [value for value in COMM_DTYPE.values.options if value is not None]

# They need attention, repeated blocks or a function checkpoint(model).
OF_BLOCKS = ("compile_scope", "sdpa_backend", "activation_checkpointing")

# In force only after several steps: see `test_steps.py`.
OF_STEPS = ("gc",)

# Read when a process starts, so that this one comes too late: see `test_environment_knobs.py`.
ENVIRONMENT_KNOBS = [k for k in ALL_KNOBS if type(k).environ is not Knob.environ]

every_knob = pytest.mark.parametrize("knob", ALL_KNOBS, ids=lambda knob: knob.name)
pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    # Dynamo hides this one from users, but not from pytest.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),
]


def settings_with(knob, value):
    """Settings under which `knob` means something, this value among them."""
    threads = {"num_threads": torch.get_num_threads()}
    return {**threads, **switched_on(knob), knob.name: value}


def switched_on(knob):
    """The setting of a knob that another one needs, if any."""
    on = {"num_workers": 2, "compile_mode": "default"}
    if knob.name == "fill_uninitialized_memory":
        return {"deterministic": True}
    if knob.needs is None:
        return {}
    return {knob.needs: on.get(knob.needs, True)}


def every_value():
    later = [*ENVIRONMENT_KNOBS, *map(KNOBS.get, OF_STEPS)]
    settable = [knob for knob in ALL_KNOBS if knob not in later]
    pairs = [(knob, value) for knob in settable for value in knob.suggestions(CPU)]
    pairs += [(KNOBS[name], value) for name, value in ALSO_SETTABLE]
    return [
        pytest.param(
            knob,
            value,
            id=f"{knob.name}={spelled(value)}",
            marks=marks_of(knob, value),
        )
        for knob, value in pairs
    ]


def marks_of(knob, value):
    """Compiling takes long: once with each knob is enough for `make check`."""
    if not compiles(knob, value):
        return []
    is_one = value is True or value in ("default", "blocks", 0.5)
    return pytest.mark.real if is_one else pytest.mark.long


def compiles(knob, value):
    return knob.needs == "compile_mode" or (knob.name == "compile_mode" and value is not None)


def world_for(knob, request):
    """A process group of this process for a knob that means nothing without one."""
    found = request.getfixturevalue("one_of_one") if knob.of_ranks else ALONE
    if knob is COMM_DTYPE and len(comm_dtypes(torch.device("cpu"))) < len(COMM_DTYPES):
        pytest.skip("this torch has no compression hook for the CPU in some format")
    return found


def bench_for(knob, value, request):
    """A workload and settings under which a value means something."""
    name = "blocks_workload" if knob.name in OF_BLOCKS else "workload"
    used = request.getfixturevalue(name)
    if knob.name == "merge_param_groups":
        used = replace(used, build_optimizer=in_groups)
    return Bench.of(used, "cpu", settings_with(knob, value), world_for(knob, request))


def in_groups(parameters, **options):
    """An optimizer with a group for each parameter."""
    return torch.optim.AdamW([{"params": [one]} for one in parameters], **options)


def set_up(settings, workload, world=ALONE):
    config = TrainingConfig.of(settings)
    Settings(config).apply_to_process()
    return apply(config, workload, "cpu", 0, build_dataset(workload), world)


@every_knob
def test_a_knob_explains_itself(knob):
    texts = {"summary": knob.summary, "pays": knob.pays, "hurts": knob.hurts}
    assert list(text_faults(texts)) == []
    assert knob.call
    assert knob.source.startswith("https://")


@every_knob
def test_a_default_is_legal(knob):
    assert knob.values.fault(knob.default) is None


@every_knob
def test_a_knob_that_needs_another_comes_after_it(knob):
    names = [each.name for each in ALL_KNOBS]
    assert knob.needs is None or names.index(knob.needs) < names.index(knob.name)


@every_knob
def test_suggested_values_and_the_default_are_legal_and_possible(knob):
    assert [fault for machine in MACHINES for fault in suggestion_faults(knob, machine)] == []


@every_knob
def test_a_knob_means_something_to_a_workload_that_allows_everything(knob):
    assert knob.irrelevance(IMAGE_FACTS) is None


@pytest.mark.parametrize(("knob", "value"), every_value())
def test_a_value_trains_is_read_back_beside_all_others_and_stays_when_repeated(
    knob, value, request
):
    needs_torch_with(knob, value)
    bench = bench_for(knob, value, request)
    assert list(value_faults(bench, knob, value)) == []


@pytest.mark.parametrize(("knob", "value"), every_value())
def test_the_default_is_in_force_again_after_a_value(knob, value, request):
    needs_torch_with(knob, value)
    bench = bench_for(knob, value, request)
    default = knob.resolve(knob.default, CPU)
    assert list(return_faults(bench, knob.name, value, default)) == []


def needs_torch_with(knob, value):
    """Skip a test of a mode of compilation that an older torch lacks."""
    if knob.name == "compile_mode" and value not in (None, *compile_modes()):
        pytest.skip(f"torch {torch.__version__} has no mode {value}")


UNDO = {
    "plain loader": lambda it: replace(it, loader=DataLoader(it.loader.dataset)),
    "no scaler": lambda it: replace(it, scaler=torch.amp.GradScaler("cpu", enabled=False)),
    "precise products": lambda _: torch.set_float32_matmul_precision("highest"),
    "any kernel": lambda _: torch.use_deterministic_algorithms(True, warn_only=True),
    "no search": lambda _: setattr(torch.backends.cudnn, "benchmark", False),
    "one thread more": lambda _: torch.set_num_threads(torch.get_num_threads() + 1),
    "nothing": lambda _: None,  # what the optimizer and the process never got is noticed
    "images first": lambda it: it.model.to(memory_format=torch.contiguous_format),
    "another model": lambda it: replace(it, model=nn.Conv2d(3, 8, kernel_size=3)),
    "a batch at a time": lambda it: it.step(
        repeat(default_collate([it.loader.dataset[0], it.loader.dataset[1]])), 1
    ),
    "unfused": lambda it: [
        one.update(fused=None, foreach=None) for one in it.optimizer.param_groups
    ],
    "plainly wrapped": lambda it: replace(it, ddp=DistributedDataParallel(it.model)),
    # The default by its number: the first bucket is then no smaller one.
    "wrapped in 25": lambda it: replace(
        it, ddp=DistributedDataParallel(it.model, bucket_cap_mb=25)
    ),
    "filled": lambda _: setattr(torch.utils.deterministic, "fill_uninitialized_memory", True),
    "all kept": lambda _: torch_private.set_activation_budget(1.0),
}
"""What somebody does behind our back; where it returns a setup, that takes the place of ours."""


@pytest.mark.parametrize(
    ("name", "value", "undo"),
    [
        ("batch_size", 64, "plain loader"),
        ("num_workers", 2, "plain loader"),
        ("prefetch_factor", 4, "plain loader"),
        ("persistent_workers", True, "plain loader"),
        ("pin_memory", True, "plain loader"),
        ("accumulation_steps", 4, "a batch at a time"),
        ("amp_dtype", "float16", "no scaler"),
        ("float32_matmul_precision", "high", "precise products"),
        ("compile_mode", "default", "another model"),
        ("channels_last", True, "images first"),
        ("channels_last", True, "another model"),
        ("cudnn_benchmark", True, "no search"),
        ("deterministic", True, "any kernel"),
        ("fill_uninitialized_memory", False, "filled"),
        ("gc", "frozen", "nothing"),
        ("merge_param_groups", True, "nothing"),
        ("activation_memory_budget", 0.5, "all kept"),
        ("optimizer_impl", "fused", "unfused"),
        ("optimizer_impl", "foreach", "unfused"),
        ("compile_dynamic", True, "another model"),
        ("compile_scope", "blocks", "another model"),
        ("sdpa_backend", "math", "another model"),
        ("activation_checkpointing", True, "another model"),
        ("num_threads", 1, "one thread more"),
        ("in_order", False, "plain loader"),
        ("ddp_bucket_mb", 50, "plainly wrapped"),
        ("ddp_bucket_mb", None, "wrapped in 25"),
        ("gradient_as_bucket_view", True, "plainly wrapped"),
        ("ddp_comm_dtype", "float16", "plainly wrapped"),
    ],
)
def test_an_effect_that_is_undone_behind_our_back_is_noticed(name, value, undo, request):
    bench = bench_for(KNOBS[name], value, request)
    setup = set_up(settings_with(KNOBS[name], value), bench.workload, bench.world)
    changed = UNDO[undo](setup)
    setup = changed if isinstance(changed, TrainingSetup) else setup
    assert name in [knob for knob, _, _ in setup.not_applied()]


def test_every_knob_has_a_test_of_being_undone():
    (mark,) = test_an_effect_that_is_undone_behind_our_back_is_noticed.pytestmark
    cases = [getattr(case, "values", case) for case in mark.args[1]]
    assert {case[0] for case in cases} == set(KNOBS) - {k.name for k in ENVIRONMENT_KNOBS}


def test_a_model_that_was_to_be_compiled_and_was_not_yet_is_noticed(workload):
    setup = set_up(settings_with(KNOBS["compile_mode"], "default"), workload)
    assert setup.not_applied() == [("compile_mode", "default", None)]


PAIRS = [
    pytest.param(
        knob,
        value,
        id=f"{knob.name}={value}",
        marks=pytest.mark.long if value in ("tcmalloc", "active") else pytest.mark.real,
    )
    for knob in ALL_KNOBS
    if type(knob).environ is not Knob.environ
    for value in knob.suggestions(cpu_machine())
    if knob.environ(value)
]


@pytest.mark.parametrize(("knob", "value"), PAIRS)
def test_a_host_is_started_with_the_value_and_its_forks_read_it_back(knob, value, tmp_path):
    with SubprocessRunner(tmp_path / "inductor") as runner:
        job = job_for(WORKLOADS / "plain.py", {knob.name: value})
        outcome = runner.run(job, tmp_path / "trial")
    assert isinstance(outcome, Measured)
    launch = (tmp_path / "trial" / "launch").read_text()
    (name,) = knob.environ(value)
    assert launch == f"forked with {name}; dataset built again: --fresh-data\n"
